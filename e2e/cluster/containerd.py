"""containerd with a root, a state folder and a socket of its own, beside any other containerd of the machine."""

import subprocess
from pathlib import Path

from e2e.cluster import configuration, paths
from e2e.cluster.commands import run
from e2e.cluster.processes import Service

PAUSE_IMAGE = "localhost/lmcache-couchbase/pause:1"

# Format 2 is read by containerd 1.x and 2.x.
_CONFIGURATION = f"""\
version = 2
root = "{paths.CONTAINERD_ROOT}"
state = "{paths.CONTAINERD_STATE}"
[grpc]
  address = "{paths.CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  netns_mounts_under_state_dir = true
  # The machine may itself be a container that must not lower OOM scores.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{paths.CNI_PLUGINS}"
    conf_dir = "{paths.CNI_CONFIG}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "{paths.RUNC_STATE}"
"""


def service() -> Service:
    """Return containerd."""
    return Service("containerd", ["containerd", "--config", paths.CONFIG / "containerd.toml", "--log-level", "warn"])


def start() -> None:
    """Start it if it does not run and wait until it answers.

    Raises:
        ClusterError: it ended or did not answer in time.
    """
    configuration.write_text(paths.CONFIG / "containerd.toml", _CONFIGURATION)
    service().start()
    service().await_ready(is_ready, timeout_seconds=30)


def is_ready() -> bool:
    """Tell whether it answers."""
    if not paths.CONTAINERD_SOCKET.exists():
        return False
    try:
        return subprocess.run([*_CTR, "version"], capture_output=True, check=False, timeout=10).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def ctr(*arguments: str | Path) -> str:
    """Run containerd's own client in the namespace of Kubernetes and return what it prints.

    Raises:
        ClusterError: it failed.
    """
    return run([*_CTR, *arguments])


_CTR = ("ctr", "--address", str(paths.CONTAINERD_SOCKET), "--namespace", "k8s.io")
