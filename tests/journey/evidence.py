"""What pods say of a journey that failed: it runs where nobody can ask them afterwards."""

from __future__ import annotations

import re

from couchbase_lm_operator import names
from e2e.demo.kube import Kube

_LINES = 40
_ROUTINE = re.compile(r'"GET /(healthcheck|health|metrics|status)\b')
_READ_STATUS = (
    "import urllib.request as r;"
    f"print(r.urlopen('http://127.0.0.1:{names.LMCACHE_HTTP_PORT}/status',timeout=10).read().decode())"
)


def evidence(kube: Kube, namespace: str, pods: list[str]) -> str:
    """Return the last lines of each container's log, without requests of probes, and LMCache's own status."""
    told = []
    for pod in pods:
        for container in (names.CONTAINER_LMCACHE, names.CONTAINER_VLLM):
            command = ["logs", "--timestamps", "--tail=2000", pod, "-n", namespace, "-c", container]
            lines = kube.kubectl(*command, check=False).splitlines()
            lines = [line for line in lines if not _ROUTINE.search(line)][-_LINES:]
            told.append("\n".join([f"== {pod}, {container}", *lines]))
        status = ["exec", "-n", namespace, pod, "-c", names.CONTAINER_LMCACHE, "--", "python3", "-ISc", _READ_STATUS]
        told.append(f"== {pod}, status of LMCache\n{kube.kubectl(*status, check=False)}")
    return "\n".join(told)
