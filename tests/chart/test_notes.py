"""What the chart prints after an installation can be pasted into a shell as it is."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import yaml

from e2e.demo.kube import Kube
from tests.chart.charts import CHART

if TYPE_CHECKING:
    from pathlib import Path

# a kubectl that shows what it would apply
SHELL = """
kubectl() { case " $* " in *" apply "*) cat ;; esac; }
set -e
"""


def _notes(folder: Path) -> str:
    install = ("install", "notes", str(CHART), "--dry-run=client", "--namespace", "default")
    return Kube(folder / "kubeconfig").helm(*install).partition("\nNOTES:\n")[2]


def test_the_first_resource_is_applied_by_what_the_notes_say(tmp_path: Path) -> None:
    lines = _notes(tmp_path).splitlines()
    first = next(number for number, line in enumerate(lines) if "create secret generic" in line)
    last = next(number for number, line in enumerate(lines) if " wait --for=condition=Ready" in line)
    script = SHELL + "\n".join(lines[first : last + 1]) + "\necho '# pasted to the end'\n"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("# pasted to the end\n")
    resource = yaml.safe_load(done.stdout)
    assert resource["kind"] == "LMCacheCouchbase"
    assert set(resource["spec"]) == {"model", "couchbase", "replicas"}
