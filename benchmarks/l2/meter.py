"""What one round costs the process that runs it: time, CPU, and memory at its peak.

Runs inside the measured process, so that nothing but the round itself is counted. Linux only: peaks come from
`VmHWM` in /proc/self/status, which writing 5 to /proc/self/clear_refs brings back to the present size (proc(5)).
"""

import json
import time
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


class Meter:
    """Collects rounds; `begin` and `end` alternate."""

    def __init__(self) -> None:
        self._baseline_bytes = 0
        self._rounds: list[dict[str, float]] = []
        self._began: float | None = None
        self._cpu_before = 0.0

    def take_baseline(self) -> None:
        """Remember the present size of the process: what it holds before the measured thing exists."""
        self._baseline_bytes = _resident_bytes("VmRSS")

    def begin(self) -> float:
        """Start a round and return the moment, as `time.perf_counter` does."""
        _CLEAR_REFS.write_text("5")
        self._cpu_before = time.process_time()
        self._began = time.perf_counter()
        return self._began

    def end(self) -> float:
        """End the round and return the moment."""
        now, cpu = time.perf_counter(), time.process_time()
        if self._began is None:
            raise RuntimeError("a round ended that had not begun")
        self._rounds.append(
            {
                "seconds": now - self._began,
                "cpu_seconds": cpu - self._cpu_before,
                "peak_extra_rss_bytes": _resident_bytes("VmHWM") - self._baseline_bytes,
            }
        )
        self._began = None
        return now

    def tick(self) -> float:
        """Stand in for a clock that is read once before and once after every round."""
        return self.begin() if self._began is None else self.end()

    def write(self, path: Path) -> None:
        """Write all rounds, in the order in which they ran."""
        path.write_text(json.dumps(self._rounds))


def _resident_bytes(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise RuntimeError(f"{_STATUS} has no {field}")
