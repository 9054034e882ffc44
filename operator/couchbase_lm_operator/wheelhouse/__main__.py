"""Command line: ``python -m couchbase_lm_operator.wheelhouse build-plugin | build-device | copy DEST``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from couchbase_lm_operator.wheelhouse.build import BuildError, build_device, build_plugin
from couchbase_lm_operator.wheelhouse.copy import copy
from couchbase_lm_operator.wheelhouse.install import InstallError

_ACTIONS = {"build-plugin": build_plugin, "build-device": build_device, "copy": copy}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m couchbase_lm_operator.wheelhouse")
    commands = parser.add_subparsers(dest="command", required=True)
    sources = {
        "build-plugin": ("fetch and build the wheels of the Couchbase adapter", "plugin/couchbase-lm-cache"),
        "build-device": ("build the wheels of the device backend", "plugin/lmcache-hostcpu-device"),
        "copy": ("copy the wheels for this machine and the installer", "/opt/wheelhouse"),
    }
    for name, (told, source) in sources.items():
        command = commands.add_parser(name, help=f"{told} into DEST")
        command.add_argument("destination", metavar="DEST", type=Path)
        command.add_argument("--source", type=Path, default=Path(source), help="folder to read; default: %(default)s")
    options = parser.parse_args(arguments)
    try:
        message = _ACTIONS[options.command](options.source, options.destination)
    except (BuildError, InstallError) as error:
        sys.stderr.write(f"wheelhouse: {error}\n")
        return 1
    sys.stdout.write(f"wheelhouse: {message}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
