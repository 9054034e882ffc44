"""``python -m tests.vllm_specs.worker CASES RESULTS``: answer cases one by one, a JSON line each.

Every line is flushed, and a case is announced before it is tried, so that whoever reads RESULTS knows which
one took the process down.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tests.vllm_specs.cases import Case


def main() -> None:
    """Answer all cases; only a crash ends it early."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
    os.environ.update(LMCACHE_TRACK_USAGE="false", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")
    from tests.vllm_specs import cuda_shape

    cuda_shape.install()
    from tests.vllm_specs import stand_ins
    from tests.vllm_specs.observe import prepare_process

    prepare_process()
    cuda_shape.allow_all_models()
    stand_ins.install()
    cases = [Case(**fields) for fields in json.loads(Path(sys.argv[1]).read_text())]
    with Path(sys.argv[2]).open("a") as results:
        for case in cases:
            print(json.dumps({"case": case.name, "started": True}), file=results, flush=True)
            print(json.dumps({"case": case.name, **answer(case)}), file=results, flush=True)


def answer(case: Case) -> dict[str, Any]:
    """Return the configuration and the numbers, or an ``error`` and where it came from."""
    from tests.vllm_specs import model_types
    from tests.vllm_specs.observe import observe

    started = time.monotonic()
    found: dict[str, Any] = {}
    try:
        found["config"] = model_types.config_of(case.model_type, case.changes)
        if case.is_built:
            device = "cpu" if case.model_type in model_types.BUILT_ON_CPU else "meta"
            found.update(observe(found["config"], case.engine, case.chunks, device))
    except Exception as error:  # noqa: BLE001 - whatever a model class raises is the answer
        where = traceback.extract_tb(error.__traceback__)[-1]
        found["error"] = f"{type(error).__name__}: {str(error)[:400]}"
        found["at"] = f"{Path(where.filename).name}:{where.lineno} {where.name}"
    return {**found, "seconds": round(time.monotonic() - started, 2)}


if __name__ == "__main__":
    main()
