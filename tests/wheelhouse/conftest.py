"""A real wheelhouse, built once per session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.wheelhouse.processes import OPERATOR, ROOT, run


@pytest.fixture(scope="session")
def build_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with pip and what building our wheels takes, as the image's build stages have it."""
    folder = tmp_path_factory.mktemp("build-env")
    made = run(sys.executable, "-m", "venv", folder)
    assert made.returncode == 0, made.stderr
    python = folder / "bin" / "python"
    for name in ("images.lock", "device-build.lock"):
        lock = ROOT / "requirements" / name
        filled = run(python, "-m", "pip", "install", "-q", "--require-hashes", "-r", lock)
        assert filled.returncode == 0, filled.stderr
    return python


@pytest.fixture(scope="session")
def wheelhouse(build_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator image's wheels of the Couchbase adapter."""
    folder = tmp_path_factory.mktemp("image") / "wheelhouse"
    built = run(
        build_python, "-m", "couchbase_lm_operator.wheelhouse", "build-plugin", folder, PYTHONPATH=str(OPERATOR)
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="session")
def device_wheelhouse(build_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator image's wheels of the device backend."""
    folder = tmp_path_factory.mktemp("devices") / "hostcpu"
    program = ("-m", "couchbase_lm_operator.wheelhouse", "build-device", folder)
    built = run(build_python, *program, PYTHONPATH=str(OPERATOR))
    assert built.returncode == 0, built.stderr
    return folder
