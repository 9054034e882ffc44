"""Command line: ``python -m couchbase_lm_operator.wheelhouse build DEST`` and ``… copy DEST``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from couchbase_lm_operator.wheelhouse.build import BuildError, build
from couchbase_lm_operator.wheelhouse.copy import copy
from couchbase_lm_operator.wheelhouse.install import InstallError


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m couchbase_lm_operator.wheelhouse")
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="fetch and build all wheels into DEST")
    building.add_argument("destination", metavar="DEST", type=Path)
    building.add_argument("--plugin", type=Path, default=Path("plugin/couchbase-lm-cache"), help="its source folder")
    copying = commands.add_parser("copy", help="copy the wheels for this machine and the installer to DEST")
    copying.add_argument("destination", metavar="DEST", type=Path)
    copying.add_argument("--source", type=Path, default=Path("/opt/wheelhouse"), help="folder that build filled")
    options = parser.parse_args(arguments)
    try:
        if options.command == "build":
            message = build(options.plugin, options.destination)
        else:
            message = copy(options.source, options.destination)
    except (BuildError, InstallError) as error:
        sys.stderr.write(f"wheelhouse: {error}\n")
        return 1
    sys.stdout.write(f"wheelhouse: {message}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
