"""How many threads may copy, and on which cores."""

from __future__ import annotations

import contextlib
import logging
import math
import os
from pathlib import Path

THREADS_VARIABLE = "LMCACHE_HOSTCPU_THREADS"

_LOGGER = logging.getLogger(__name__)
_TASKS = Path("/proc/self/task")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores() -> list[int]:
    """Return the cores that this process may run on.

    Inference engines bind each of their threads to one core, so the calling thread alone would tell too little: it is
    the cores of all threads of the process.
    """
    cores = set(os.sched_getaffinity(0))
    for task in os.listdir(_TASKS) if _TASKS.is_dir() else ():  # noqa: PTH208  # names, not paths, are wanted
        with contextlib.suppress(ProcessLookupError):  # it may have ended in the meantime
            cores |= os.sched_getaffinity(int(task))
    return sorted(cores)


def thread_count(cores: list[int]) -> int:
    """Return how many threads copy: ``LMCACHE_HOSTCPU_THREADS``, or one for each core that the container may use."""
    wanted = os.environ.get(THREADS_VARIABLE, "")
    if wanted:
        if wanted.isascii() and wanted.isdigit() and int(wanted) > 0:
            return int(wanted)
        _LOGGER.warning("%s=%r is not a number of threads (1 or more): it is ignored", THREADS_VARIABLE, wanted)
    return max(1, min(len(cores), _quota_cores(_QUOTA)))


def _quota_cores(path: Path) -> int:
    """Cores' worth of time that the container gets, rounded up (``cpu.max``, see the kernel's cgroup v2 manual)."""
    unlimited = 1 << 16
    try:
        quota, period = path.read_text().split()
    except (OSError, ValueError):  # no cgroup v2, or none that is limited
        return unlimited
    return unlimited if quota == "max" else max(1, math.ceil(int(quota) / int(period)))
