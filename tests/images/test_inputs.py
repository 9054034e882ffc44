"""When an image is out of date: its stages of the Dockerfile, its build arguments, the files it copies."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.bootstrap import ROOT
from e2e.images.catalog import CATALOG, Image, image
from e2e.images.dockerfile import copies_of_stage, lines_of_target
from e2e.images.inputs import inputs_digest

DOCKERFILE = (ROOT / "Dockerfile").read_text()
ARGUMENTS = {"BASE": "debian", "ENGINE_BASE": "vllm"}


@pytest.mark.parametrize("each", CATALOG, ids=lambda each: each.name)
def test_the_catalog_names_everything_that_the_dockerfile_copies(each: Image) -> None:
    copied: set[str] = set()
    for line in lines_of_target(DOCKERFILE, each.name):
        words = line.split()
        if words[0] == "COPY" and not words[1].startswith("--from"):
            copied |= set(words[1:-1])
    covered = {
        source for source in copied if any(source == own or source.startswith(own + "/") for own in each.sources)
    }
    assert copied - covered == set()


def test_a_stage_that_the_target_does_not_use_is_no_input() -> None:
    text = (
        "ARG B\nFROM ${B} AS a\nRUN a\nFROM a AS b\nRUN b\nFROM ${B} AS c\nCOPY --from=b /x /x\nFROM ${B} AS d\nRUN d\n"
    )
    assert lines_of_target(text, "c") == text.splitlines()[:7]
    assert lines_of_target(text, "d") == ["ARG B", "FROM ${B} AS d", "RUN d"]


def test_a_mounted_stage_is_an_input() -> None:
    text = "FROM x AS a\nRUN a\nFROM x AS b\nRUN --mount=type=bind,from=a,source=/s,target=/t b\n"
    assert lines_of_target(text, "b") == text.splitlines()


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(KeyError, match="nothing"):
        lines_of_target(DOCKERFILE, "nothing")
    with pytest.raises(KeyError, match="operator, emulator"):
        image("nothing")


def test_the_engine_stage_holds_copies_alone() -> None:
    parent, copies = copies_of_stage(DOCKERFILE, "engine-cpu")
    assert parent == "engine-cpu-system"
    assert [destination for _, destination in copies] == ["/opt/venv", "/models/smollm2-135m-instruct"]
    with pytest.raises(ValueError, match="nothing but COPY"):
        copies_of_stage("FROM x AS a\nRUN more\n", "a")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the emulator's image is made of."""
    for source in ("Dockerfile", *image("emulator").sources):
        target = tmp_path / source
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, target)
    return tmp_path


def _digest(checkout: Path, arguments: dict[str, str] = ARGUMENTS) -> str:
    return inputs_digest(image("emulator"), arguments, root=checkout)


def test_a_change_of_an_input_changes_the_digest(checkout: Path) -> None:
    before = _digest(checkout)
    module = checkout / "e2e" / "couchbase_emulator" / "cli.py"
    module.write_text(module.read_text() + "\n# changed\n")
    assert _digest(checkout) != before


def test_another_base_changes_the_digest(checkout: Path) -> None:
    assert _digest(checkout, {"BASE": "debian:13"}) != _digest(checkout)
    assert _digest(checkout, {**ARGUMENTS, "ENGINE_BASE": "other"}) == _digest(checkout)


def test_bytecode_comments_and_other_stages_change_nothing(checkout: Path) -> None:
    before = _digest(checkout)
    cache = checkout / "e2e" / "couchbase_emulator" / "__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "x.pyc").write_bytes(b"x")
    dockerfile = checkout / "Dockerfile"
    dockerfile.write_text("# a comment\n\n" + dockerfile.read_text() + "\nFROM scratch AS another\n")
    assert _digest(checkout) == before


def test_a_missing_input_is_named(checkout: Path) -> None:
    (checkout / "requirements" / "emulator.lock").unlink()
    with pytest.raises(FileNotFoundError, match=r"emulator.*requirements/emulator\.lock"):
        _digest(checkout)


def test_the_command_line_names_the_images_there_are() -> None:
    command = [sys.executable, "-m", "e2e.images"]
    wrong = subprocess.run([*command, "build", "nothing"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "operator, emulator, engine-cpu, engine" in wrong.stderr
    listed = subprocess.run([*command, "list"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == len(CATALOG)
