"""The engine image on somebody else's base: the plugin lands in that base's own interpreter."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tarfile
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, cast

import pytest
import typing_extensions

from e2e.images.builders import Buildah
from e2e.images.catalog import image

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)

# An interpreter under /opt/venv that has LMCache by name, and typing_extensions, as engine images do.
_BASE = """\
ARG BASE
FROM ${BASE}
RUN python3 -m venv --without-pip /opt/venv \\
    && cd /opt/venv/lib/python3*/site-packages \\
    && mkdir lmcache && touch lmcache/__init__.py
COPY typing_extensions.py /opt/venv/lib/python3.11/site-packages/
"""


@pytest.fixture
def builder() -> Buildah:
    return Buildah()


@pytest.fixture
def engine_base(builder: Buildah, tmp_path: Path) -> Iterator[str]:
    name = f"localhost/engine-base-{secrets.token_hex(4)}:test"
    (tmp_path / "Dockerfile").write_text(_BASE)
    shutil.copy(typing_extensions.__file__, tmp_path)
    builder.prepare(builder.default_base())
    command = ["buildah", "bud", "--quiet", "--isolation", "chroot", "--tag", name]
    subprocess.run([*command, "--build-arg", f"BASE={builder.default_base()}", tmp_path], check=True)
    yield name
    subprocess.run(["buildah", "rmi", "--force", name], check=True, capture_output=True)


def test_the_plugin_is_in_the_environment_of_the_base(builder: Buildah, engine_base: str, tmp_path: Path) -> None:
    archive = tmp_path / "engine.tar"
    engine = replace(image("engine"), reference=engine_base.replace("engine-base", "engine"))
    try:
        builder.build(engine, {"BASE": builder.default_base(), "ENGINE_BASE": engine_base}, archive)
    finally:
        subprocess.run(["buildah", "rmi", "--force", engine.reference], check=False, capture_output=True)
    files = set().union(*(_files(layer) for layer in _layers(archive)))
    assert "opt/venv/lib/python3.11/site-packages/couchbase-lm-cache.pth" in files
    assert "opt/couchbase-lm-cache/couchbase_lm_cache/l2_adapter.py" in files
    # the base's own modules are not shadowed, and what installed the plugin stays behind
    assert not any(name.startswith("opt/couchbase-lm-cache/typing_extensions") for name in files)
    assert not any(name.endswith((".whl", "install.py")) for name in files)


def _layers(archive: Path) -> Iterator[IO[bytes]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.name.startswith("blobs/") else None
            if content and not content.peek(1).startswith(b"{"):  # type: ignore[attr-defined]
                yield content


def _files(layer: IO[bytes]) -> set[str]:
    with tarfile.open(fileobj=cast("Any", layer)) as tar:
        return {member.name.removeprefix("./") for member in tar}


@pytest.fixture(autouse=True)
def _tools() -> None:
    assert shutil.which("buildah"), "buildah is missing: `make images` installs it"
