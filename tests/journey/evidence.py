"""What pods say of a journey that failed: it runs where nobody can ask them afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator

from couchbase_lm_operator import names
from e2e.demo.journey import Workload
from e2e.demo.kube import DemoError, Kube
from e2e.demo.metrics import read_lmcache

_LINES = 40
_ROUTINE = re.compile(r'"GET /(healthcheck|health|metrics|status)\b')


def evidence(workload: Workload) -> str:
    """Return what each pod of a workload says. Never raises: the failure to be told of is another one."""
    told = []
    try:
        for pod in workload.pods():
            told += _of_pod(workload.kube, workload.namespace, pod)
    except DemoError as error:
        told.append(f"== no more: {error}")
    return "\n".join(told)


def _of_pod(kube: Kube, namespace: str, pod: str) -> Iterator[str]:
    """Tell the last lines of each container's log, without requests of probes, and LMCache's own status."""
    for container in (names.CONTAINER_LMCACHE, names.CONTAINER_VLLM):
        command = ["logs", "--timestamps", "--tail=2000", pod, "-n", namespace, "-c", container]
        lines = [line for line in kube.kubectl(*command, check=False).splitlines() if not _ROUTINE.search(line)]
        yield "\n".join([f"== {pod}, {container}", *lines[-_LINES:]])
    try:
        status = read_lmcache(kube, namespace, pod, "status")
    except DemoError as error:  # the container may be what failed
        status = str(error)
    yield f"== {pod}, status of LMCache\n{status}"
