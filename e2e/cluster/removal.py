"""Take away everything a node left on the machine, found by record, control group, socket path, or our own names."""

import time
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster import kernel, mounts, network, paths, traces
from e2e.cluster.errors import ClusterError
from e2e.cluster.processes import Process, await_condition, identify, recorded, with_argument

_PATIENCE_SECONDS = 20.0


def remove_node(records: Sequence[Path]) -> None:
    """Stop the recorded programs, end the pods, and remove mounts, network, control groups, settings and files.

    Args:
        records: process records in the order in which the programs were started.

    Raises:
        ClusterError: a process or a mount could not be removed; what comes after it is left as it is.
    """
    # Last started, first stopped: whoever would start pods again goes before the pods do.
    for record in reversed(records):
        process = recorded(record)
        if process is not None:
            process.stop(grace_seconds=5.0)
    _end_pods()
    for root in (paths.STATE, paths.DATA):
        mounts.unmount_below(root)
    network.remove()
    traces.remove()
    kernel.remove_cgroup()
    kernel.restore_settings()
    for root in (paths.DATA, paths.STATE):
        mounts.remove_tree(root)


def _end_pods() -> None:
    # Shims first: one that sees its container die would wait for a containerd that is gone.
    def remaining() -> list[Process]:
        contained = (identify(pid) for pid in kernel.pids_in_cgroup())
        return [*with_argument(str(paths.CONTAINERD_SOCKET)), *(process for process in contained if process)]

    deadline = time.monotonic() + _PATIENCE_SECONDS
    while processes := remaining():
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in processes)
            raise ClusterError(f"processes of pods did not end within {_PATIENCE_SECONDS:.0f} s: {pids}")
        for process in processes:
            process.stop(grace_seconds=0.0)
        await_condition(lambda: not remaining(), timeout_seconds=0.5)
