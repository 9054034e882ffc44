"""The local Kubernetes node: `up` starts, repairs or adopts it, `down` removes it, `status` tells how it is.

`build` only builds the programs into the cache.
"""

import argparse
import sys

from e2e.cluster import binaries, lifecycle
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import CLUSTER


def main() -> int:
    """Do what was asked for and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description=__doc__)
    parser.add_argument("what", choices=["up", "down", "status", "build"])
    what = parser.parse_args().what
    try:
        if what == "status":
            return 0 if lifecycle.status() else 1
        {"up": lifecycle.up, "down": lifecycle.down, "build": binaries.ensure}[what]()
    except ClusterError as error:
        CLUSTER.say(f"failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
