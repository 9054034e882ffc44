"""The plugin reaches interpreters that know nothing of it: built, copied, unpacked and imported for real."""

from __future__ import annotations

import json
import shutil
import stat
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from couchbase_lm_operator.wheelhouse import install as installer
from couchbase_lm_operator.wheelhouse.copy import is_for_this_machine
from tests.wheelhouse.processes import OPERATOR, interpreters, run

VERSIONS = interpreters()


@pytest.fixture
def volume(wheelhouse: Path, tmp_path: Path) -> Path:
    """The shared volume after the first init container."""
    folder = tmp_path / "plugin"
    copied = run(
        sys.executable,
        *("-m", "couchbase_lm_operator.wheelhouse", "copy", folder, "--source", wheelhouse),
        PYTHONPATH=str(OPERATOR),
    )
    assert copied.returncode == 0, copied.stderr
    return folder


def bare(python: Path, folder: Path) -> Path:
    """Make an environment without pip that has, like every engine image, typing_extensions."""
    made = run(python, "-m", "venv", "--without-pip", folder)
    assert made.returncode == 0, made.stderr
    site = next((folder / "lib").glob("python3.*/site-packages"))
    import typing_extensions

    shutil.copy(typing_extensions.__file__ or "", site)
    return folder / "bin" / "python"


def install(python: Path | str, volume: Path, *options: str) -> tuple[int, str, str]:
    result = run(
        python,
        volume / "install.py",
        *("--from", volume / "wheelhouse", "--into", volume / "site"),
        *(options or ("--expect", "typing_extensions")),
    )
    return result.returncode, result.stdout, result.stderr


def test_every_supported_interpreter_has_its_wheels(wheelhouse: Path) -> None:
    names = {path.name for path in wheelhouse.glob("*.whl")}
    assert set(json.loads((wheelhouse / "manifest.json").read_text())["sha256"]) == names
    for minor in (10, 11, 12, 13):
        for distribution in ("couchbase", "xxhash"):
            for machine in ("x86_64", "aarch64"):
                assert any(
                    name.startswith(f"{distribution}-") and f"-cp3{minor}-" in name and machine in name
                    for name in names
                ), (distribution, minor, machine)
    assert any(name.startswith("couchbase_lm_cache-") and name.endswith("-py3-none-any.whl") for name in names)
    assert not any(name.startswith("typing_extensions") for name in names)


def test_the_copy_is_readable_by_everybody_and_for_this_machine_only(volume: Path) -> None:
    names = [path.name for path in (volume / "wheelhouse").glob("*.whl")]
    assert names
    assert all(map(is_for_this_machine, names))
    for path in volume.rglob("*"):
        needed = 0o555 if path.is_dir() else 0o444
        assert stat.S_IMODE(path.stat().st_mode) & needed == needed


def test_interpreters_were_found() -> None:
    """Guards the next test: without interpreters it would check nothing."""
    assert f"3.{sys.version_info.minor}" in VERSIONS


@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_an_interpreter_without_pip_gets_a_working_plugin(version: str, volume: Path, tmp_path: Path) -> None:
    python = bare(VERSIONS[version], tmp_path / "engine")
    status, said, errors = install(python, volume)
    assert status == 0, errors
    assert f"CPython {version}" in said
    assert not (volume / "site" / "typing_extensions.py").exists()
    used = run(
        python,
        "-c",
        "import couchbase, couchbase_lm_cache.sdk_transport as t; print(couchbase.__file__, t.__file__)",
        PYTHONPATH=str(volume / "site"),
    )
    assert used.stdout.count(str(volume / "site")) == 2, used.stderr


def test_a_second_run_changes_nothing_and_a_half_done_one_is_repaired(volume: Path, tmp_path: Path) -> None:
    python = bare(Path(sys.executable), tmp_path / "engine")
    assert install(python, volume)[0] == 0
    module = volume / "site" / "couchbase_lm_cache" / "keys.py"
    written = module.stat().st_mtime_ns
    assert install(python, volume)[0] == 0
    assert module.stat().st_mtime_ns == written
    (volume / "site" / ".installed.json").unlink()
    module.unlink()
    (volume / "site" / "leftover").write_text("")
    assert install(python, volume)[0] == 0
    assert module.exists()
    assert not (volume / "site" / "leftover").exists()


def test_an_interpreter_without_lmcache_is_told_to_be_the_wrong_one(volume: Path, tmp_path: Path) -> None:
    python = bare(Path(sys.executable), tmp_path / "engine")
    status, _, errors = install(python, volume, "--expect", "lmcache")
    assert status == 1
    assert errors.count("\n") == 1
    assert "has no module lmcache" in errors
    assert "spec.engine.python" in errors


def test_a_changed_wheel_is_refused(volume: Path, tmp_path: Path) -> None:
    wheel = next((volume / "wheelhouse").glob("couchbase_lm_cache-*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"x")
    status, _, errors = install(bare(Path(sys.executable), tmp_path / "engine"), volume)
    assert status == 1
    assert f"{wheel.name} is not what the operator image was built with" in errors


def test_a_missing_manifest_is_named(volume: Path, tmp_path: Path) -> None:
    (volume / "wheelhouse" / "manifest.json").unlink()
    status, _, errors = install(bare(Path(sys.executable), tmp_path / "engine"), volume)
    assert status == 1
    assert "manifest.json is missing or damaged" in errors


def test_an_interpreter_nobody_has_wheels_for_is_told_which_are_supported(volume: Path, tmp_path: Path) -> None:
    tag = f"-cp3{sys.version_info.minor}-"
    manifest = volume / "wheelhouse" / "manifest.json"
    parts = json.loads(manifest.read_text())
    parts["sha256"] = {name: sha for name, sha in parts["sha256"].items() if tag not in name}
    manifest.write_text(json.dumps(parts))
    status, _, errors = install(bare(Path(sys.executable), tmp_path / "engine"), volume)
    assert status == 1
    assert "there is no wheel of couchbase and xxhash for CPython" in errors
    assert "3.13 on Linux with glibc is supported" in errors


def test_an_import_that_fails_is_told_with_its_last_line(volume: Path, tmp_path: Path) -> None:
    """An image without typing_extensions: the SDK would not work, and we do not bring it."""
    python = bare(Path(sys.executable), tmp_path / "engine")
    next((tmp_path / "engine" / "lib").glob("python3.*/site-packages/typing_extensions.py")).unlink()
    status, _, errors = install(python, volume, "--expect", "json")
    assert status == 1
    assert "importing it fails: ModuleNotFoundError: No module named 'typing_extensions'" in errors


def test_a_target_that_cannot_be_written_is_named(volume: Path, tmp_path: Path) -> None:
    (volume / "site").write_text("a file where the folder should be")
    status, _, errors = install(bare(Path(sys.executable), tmp_path / "engine"), volume)
    assert status == 1
    assert f"{volume / 'site'} cannot be filled" in errors


def test_a_full_volume_is_told_in_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"pkg/__init__.py": "x" * 5000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=3))
    with pytest.raises(installer.InstallError, match="has only 3 bytes free"):
        installer._unpack([wheel], tmp_path / "site")


@pytest.mark.parametrize(
    ("member", "complaint"),
    [
        ("typing_extensions.py", "would hide the image's own typing_extensions.py"),
        ("torch/__init__.py", "would hide the image's own torch"),
        ("../evil.py", "unsafe path"),
        ("/etc/evil", "unsafe path"),
        ("pkg-1.data/scripts/x", "only pip can handle"),
    ],
)
def test_wheels_that_would_do_harm_are_refused(member: str, complaint: str, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {member: ""})
    with pytest.raises(installer.InstallError, match=complaint):
        installer._unpack([wheel], tmp_path / "site")
    assert list((tmp_path / "site").iterdir()) == []


def test_wheels_that_hold_the_same_module_are_refused(tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path, {"pkg/a.py": ""}, name) for name in ("one", "two")]
    with pytest.raises(installer.InstallError, match="which another wheel holds too"):
        installer._unpack(wheels, tmp_path / "site")


@pytest.mark.parametrize(
    ("wheel", "expected"),
    [
        ("p-1-py3-none-any.whl", True),
        ("p-1-py2.py3-none-any.whl", True),
        ("p-1-cp3{minor}-cp3{minor}-manylinux2014_{machine}.manylinux_2_17_{machine}.whl", True),
        ("p-1-cp3{minor}-abi3-manylinux_2_5_{machine}.whl", True),
        ("p-1-cp3{minor}-cp3{minor}-manylinux_2_99_{machine}.whl", False),
        ("p-1-cp3{minor}-cp3{minor}-musllinux_1_2_{machine}.whl", False),
        ("p-1-cp3{minor}-cp3{minor}-macosx_11_0_{machine}.whl", False),
        ("p-1-cp3{minor}-cp3{minor}-manylinux2014_s390x.whl", False),
        ("p-1-cp3{minor}-cp3{minor}t-manylinux2014_{machine}.whl", False),
        ("p-1-cp32-cp32-manylinux2014_{machine}.whl", False),
    ],
)
def test_which_wheels_fit(wheel: str, expected: bool) -> None:
    import platform

    assert installer.fits(wheel.format(minor=sys.version_info.minor, machine=platform.machine())) is expected


def make_wheel(folder: Path, members: dict[str, str], name: str = "bad") -> Path:
    path = folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return path
