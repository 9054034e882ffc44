"""Kill a container's process from the node, as the kernel does: inside its own namespace process 1 cannot be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from couchbase_lm_operator import names
from couchbase_lm_operator.core.pod_template.pod_script import pod_script
from e2e.cluster import paths
from e2e.demo.kube import Kube


def container_status(kube: Kube, namespace: str, pod: str, container: str) -> dict[str, object]:
    """Return the status of one container or native sidecar of a pod."""
    status = (kube.get("pod", pod, "-n", namespace) or {})["status"]
    listed = status.get("containerStatuses", []) + status.get("initContainerStatuses", [])
    return next(dict(item) for item in listed if item["name"] == container)


def restarts(kube: Kube, namespace: str, pod: str, container: str) -> int:
    """Return how often a container of a pod was started again."""
    return int(str(container_status(kube, namespace, pod, container)["restartCount"]))


def kill_container(kube: Kube, namespace: str, pod: str, container: str) -> None:
    """Send SIGKILL to the main process of a container of a pod that a test created."""
    os.kill(process(kube, namespace, pod, container), signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Say whether a process of the node still runs."""
    return Path(f"/proc/{pid}").exists()


class Loopback:
    """What listens on a pod's loopback, asked from the node: no exec, which needs the very container that restarts."""

    def __init__(self, kube: Kube, namespace: str, pod: str, through: str) -> None:
        """Enter by the network namespace of a container that goes on running."""
        pid = process(kube, namespace, pod, through)
        self._enter = ["nsenter", "--target", str(pid), "--net", "--", sys.executable, "-ISc", pod_script("health.py")]

    def is_lmcache_healthy(self) -> bool:
        """Say whether the LMCache server answers its own health check now."""
        asked = subprocess.run([*self._enter, str(names.LMCACHE_HTTP_PORT)], capture_output=True, check=False)
        return asked.returncode == 0


def process(kube: Kube, namespace: str, pod: str, container: str) -> int:
    """Return the main process of a container that runs, as a pid of the node."""
    container_id = str(container_status(kube, namespace, pod, container)["containerID"]).rpartition("/")[2]
    listing = ["ctr", "-a", str(paths.CONTAINERD_SOCKET), "-n", "k8s.io", "tasks", "ls"]
    tasks = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    return next(int(line.split()[1]) for line in tasks.splitlines() if line.startswith(container_id))
