"""The files that the engine-cpu image copies, as the cache of this machine holds them."""

from __future__ import annotations

import os

from e2e.cluster.commands import run
from e2e.engine import environment, model
from e2e.images.progress import IMAGES


def prepare_engine_files() -> None:
    """Make the engine's environment and the model in the cache, and the environment's bytecode.

    Pods have a read-only root: without bytecode in the image every start would compile thousands of modules again.
    Raises ``ClusterError`` when a part could not be made.
    """
    environment.ensure()
    model.ensure()
    with IMAGES.step("bytecode of vLLM's environment"):
        # Some packages ship templates that are no Python: compileall reports them by its status, and goes on.
        command = f'"{environment.python()}" -m compileall -qq -j 0 "{environment.venv()}/lib" || true'
        run(["nice", "-n", "5", "sh", "-c", command], env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""})
