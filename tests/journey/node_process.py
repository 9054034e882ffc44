"""Kill a container's process from the node, as the kernel does: inside its own namespace process 1 cannot be killed."""

from __future__ import annotations

import os
import signal
import subprocess

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
    container_id = str(container_status(kube, namespace, pod, container)["containerID"]).rpartition("/")[2]
    listing = ["ctr", "-a", str(paths.CONTAINERD_SOCKET), "-n", "k8s.io", "tasks", "ls"]
    tasks = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    pid = next(int(line.split()[1]) for line in tasks.splitlines() if line.startswith(container_id))
    os.kill(pid, signal.SIGKILL)
