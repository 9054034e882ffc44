"""``python -m e2e.images build [NAME …]`` and ``list``."""

from __future__ import annotations

import argparse
import os
import sys

from e2e.cluster.errors import ClusterError
from e2e.images.build import build
from e2e.images.catalog import CATALOG
from e2e.images.progress import IMAGES
from e2e.images.store import archive, built


def main() -> int:
    """Run the command given on the command line and return the exit status."""
    arguments = _parser().parse_args()
    if arguments.command == "list":
        _list()
        return 0
    names = arguments.names or [each.name for each in CATALOG if each.is_default]
    chosen = {name: value for name in ("BASE", "ENGINE_BASE") if (value := os.environ.get(name))}
    try:
        build(names, chosen)
    except KeyError as error:
        print(f"error: {error.args[0]}", file=sys.stderr)
        return 2
    except (ClusterError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.images",
        description="Build the images of this repository as OCI archives under .local/images/.",
        epilog="BASE and ENGINE_BASE in the environment replace the base images.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="build what is out of date")
    building.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="operator, emulator, engine-cpu (default: these three), engine (needs its base from a registry)",
    )
    commands.add_parser("list", help="show what is built")
    return parser


def _list() -> None:
    for each in CATALOG:
        entry = built(each.name)
        shown = f"{entry.size_bytes / 1e6:8.0f} MB  {archive(each.name)}" if entry else "not built"
        IMAGES.say(f"{each.name:<12}{each.reference:<48}{shown}")


if __name__ == "__main__":
    sys.exit(main())
