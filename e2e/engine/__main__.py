"""Make the engine's environment, the model or the device backend's wheel, or resolve the lock files again."""

import argparse
import sys

from e2e.cluster.errors import ClusterError
from e2e.engine import device, environment, model

_STEPS = {
    "env": (environment.ensure,),
    "model": (model.ensure,),
    "device": (device.ensure,),
    "all": (environment.ensure, model.ensure),
    "lock": (environment.resolve_locks,),
}


def main() -> int:
    """Run what was asked for and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.engine", description=__doc__)
    parser.add_argument("what", choices=sorted(_STEPS))
    try:
        for step in _STEPS[parser.parse_args().what]:
            step()
    except ClusterError as error:
        environment.PROGRESS.say(f"failed: {error}")
        return 1
    environment.PROGRESS.say(f"ready: {environment.venv()}, {model.folder()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
