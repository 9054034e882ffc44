"""Files that are made from code: written by ``make generate``, compared by ``make check``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from couchbase_lm_operator.api.crd import crd_yaml
from e2e.bootstrap import ROOT
from e2e.chart.values_schema import values_schema
from e2e.public_models import table
from e2e.testing import adapter_settings

CHART = ROOT / "charts" / "lmcache-couchbase"
CRD_FILE = "lmcachecouchbases.lmcache-couchbase.io.yaml"


def generated_files() -> Iterator[tuple[Path, str]]:
    """Yield the path and the wanted text of every generated file."""
    text = crd_yaml()
    yield ROOT / "crds" / CRD_FILE, text
    yield CHART / "crds" / CRD_FILE, text
    yield CHART / "values.schema.json", json.dumps(values_schema(), indent=2) + "\n"
    yield adapter_settings.OPERATOR_MODULE, adapter_settings.operator_module()
    yield adapter_settings.README, adapter_settings.readme_with_settings()
    yield table.PAGE, table.page()


def write_generated() -> None:
    """Write every generated file that differs."""
    for path, text in generated_files():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")


def stale_files() -> list[str]:
    """Return the generated files whose text is not what the code would write."""
    return [
        str(path.relative_to(ROOT)) for path, text in generated_files() if not path.exists() or path.read_text() != text
    ]


if __name__ == "__main__":
    if stale := stale_files():
        sys.exit(f"stale: {', '.join(stale)}; run `make generate`")
