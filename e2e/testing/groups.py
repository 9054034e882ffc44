"""The test groups, cheap ones first, so that a fault shows early.

A group names what has to exist first (``needs``), which environment it runs in, and what pytest collects. Most tests
wait more than they compute, so the groups of a lane run one after the other, and lanes side by side. What has no
lane comes last and alone: vLLM in pods takes all that the machine has.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from e2e.bootstrap import ROOT, VENV, cache_root

ENGINE_PYTHON = cache_root() / "engine" / ".venv" / "bin" / "python"
PLUGIN = ROOT / "plugin" / "couchbase-lm-cache"
DEVICE_SITE = ROOT / ".local" / "device" / "site"

BINARIES = ("the Kubernetes binaries", ["-m", "e2e.cluster", "build"])
ENGINE = ("vLLM, LMCache and the model", ["-m", "e2e.engine", "all"])
DEVICE = ("the wheel of the device backend", ["-m", "e2e.engine", "device"])
NODE = ("the local Kubernetes node", ["-m", "e2e.cluster", "up"])
IMAGES = ("the images", ["-m", "e2e.images", "build"])

Need = tuple[str, list[str]]


@dataclass(frozen=True)
class Group:
    """One pytest run: ``paths`` collected in ``python`` after ``needs`` were met."""

    name: str
    paths: tuple[str, ...]
    needs: tuple[Need, ...] = ()
    python: Path = VENV / "bin" / "python"
    is_fast: bool = True
    python_path: tuple[Path, ...] = (ROOT,)
    lane: str = "operator"


GROUPS = (
    Group("operator", ("tests/core", "tests/templates", "tests/benchmarks", "tests/e2e/testing", "tests/e2e/demo")),
    Group("couchbase", ("tests/e2e/emulator", "tests/io", "tests/provisioning", "e2e/conformance")),
    Group("packaging", ("tests/wheelhouse", "tests/images", "tests/device")),
    Group("apiserver", ("tests/api", "tests/cli", "tests/reconcile"), needs=(BINARIES,), is_fast=False),
    Group(
        "plugin",
        ("plugin/couchbase-lm-cache/tests",),
        needs=(ENGINE,),
        python=ENGINE_PYTHON,
        is_fast=False,
        python_path=(ROOT, PLUGIN / "src"),
        lane="adapter",
    ),
    Group("sizing", ("tests/vllm_specs",), needs=(ENGINE,), python=ENGINE_PYTHON, is_fast=False, lane="engine"),
    Group(
        "device",
        ("plugin/lmcache-hostcpu-device/tests",),
        needs=(ENGINE, DEVICE),
        python=ENGINE_PYTHON,
        is_fast=False,
        python_path=(ROOT, DEVICE_SITE),
        lane="engine",
    ),
    Group("chart", ("tests/e2e/cluster", "tests/chart"), needs=(NODE, IMAGES), is_fast=False, lane=""),
    Group("journey", ("tests/journey",), needs=(NODE, IMAGES), is_fast=False, lane=""),
)
