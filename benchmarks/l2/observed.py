"""`lmcache bench l2`, with a meter on its clock; runs in the environment that has LMCache.

LMCache's benchmark reads its clock once before and once after each round and nowhere else. The meter takes the place
of that clock, and so sees CPU time and memory of exactly what LMCache times, without what its harness does between
rounds (filling and clearing buffers, comparing them). Nothing else is changed: the command line is LMCache's own.

    python -m benchmarks.l2.observed ROUNDS.json bench l2 --l2-adapter …
"""

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lmcache.cli.commands.bench.l2_adapter_bench import runner
from lmcache.cli.main import main as lmcache
from lmcache.v1.distributed import l2_adapters

from benchmarks.l2.meter import Meter


def observe(meter: Meter) -> None:
    """Let `meter` time the rounds, and take its baseline when all of L1 is resident and no adapter exists."""
    create = l2_adapters.create_l2_adapter

    def create_observed(*arguments: Any, l1_memory_desc: Any, **keywords: Any) -> Any:
        # Pages that are not touched are not resident: whoever fills L1 first must not be charged for it.
        ctypes.memset(l1_memory_desc.ptr, 0, l1_memory_desc.size)
        meter.take_baseline()
        return create(*arguments, l1_memory_desc=l1_memory_desc, **keywords)

    l2_adapters.create_l2_adapter = create_observed
    runner.time = SimpleNamespace(perf_counter=meter.tick)


def main() -> None:
    """Run LMCache's command line, then write the rounds; LMCache's exit status is ours."""
    meter = Meter()
    observe(meter)
    try:
        lmcache(sys.argv[2:])
    finally:
        meter.write(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
