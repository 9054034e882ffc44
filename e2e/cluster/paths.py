"""Every path and address of the local node, in one place.

Three roots:

* `STATE`: sockets, certificates and records of what is running. Short, because socket paths end at 108 bytes.
* `DATA`: what may grow: etcd, containerd's images and layers, the kubelet's volumes, logs.
* `cache()`: what survives the node: built programs and images, shared by all checkouts of a user.

`STATE` and `DATA` belong to the machine, not to a checkout, because ports, bridge and nft tables do as well.
"""

from pathlib import Path
from typing import Final

from e2e.bootstrap import ROOT, cache_root

STATE: Final = Path("/run/lmcache-couchbase-e2e")
DATA: Final = Path("/var/lib/lmcache-couchbase-e2e")
LOCK_FILE: Final = Path("/run/lmcache-couchbase-e2e.lock")

NODE_RECORD: Final = STATE / "node.json"
PROCESS_RECORDS: Final = STATE / "processes"
KERNEL_RECORD: Final = STATE / "kernel-settings.json"
CONFIG: Final = STATE / "config"
TRACES_RECORD: Final = STATE / "traces.json"
PKI: Final = STATE / "pki"

CONTAINERD_STATE: Final = STATE / "containerd"
CONTAINERD_SOCKET: Final = CONTAINERD_STATE / "containerd.sock"
CONTAINERD_ROOT: Final = DATA / "containerd"
CNI_CONFIG: Final = STATE / "cni"
CNI_ADDRESSES: Final = STATE / "cni-addresses"
CNI_PLUGINS: Final = Path("/usr/lib/cni")
RUNC_STATE: Final = STATE / "runc"
KUBELET_ROOT: Final = DATA / "kubelet"
ETCD_DATA: Final = DATA / "etcd"
VOLUME_PLUGINS: Final = DATA / "volume-plugins"
LOGS: Final = DATA / "log"
POD_LOGS: Final = DATA / "pod-logs"

CGROUP_NAME: Final = "lmcache-couchbase-e2e"

NODE_NAME: Final = "lmcb-node"
BRIDGE: Final = "lmcb0"
NETWORK_NAME: Final = "lmcache-couchbase-e2e"
POD_CIDR: Final = "10.244.0.0/24"
NODE_ADDRESS: Final = "10.244.0.1"
SERVICE_CIDR: Final = "10.96.0.0/16"
API_SERVICE_ADDRESS: Final = "10.96.0.1"
DNS_SERVICE_ADDRESS: Final = "10.96.0.10"
CLUSTER_DOMAIN: Final = "cluster.local"

# Outside the defaults, so that another Kubernetes or etcd on the machine keeps its own ports.
API_PORT: Final = 16443
ETCD_CLIENT_PORT: Final = 16379
ETCD_PEER_PORT: Final = 16380
KUBELET_PORT: Final = 16250
KUBELET_HEALTH_PORT: Final = 16248
PROXY_METRICS_PORT: Final = 16249
PROXY_HEALTH_PORT: Final = 16256
CONTROLLER_MANAGER_PORT: Final = 16257
SCHEDULER_PORT: Final = 16259
DNS_PORT: Final = 16053
DNS_HEALTH_PORT: Final = 16081

API_URL: Final = f"https://127.0.0.1:{API_PORT}"


def kubeconfig() -> Path:
    """Return where this checkout keeps its kubeconfig of the node."""
    return ROOT / ".local" / "cluster" / "kubeconfig"


def cache() -> Path:
    """Return the cache root, outside every checkout."""
    return cache_root().resolve()


def images() -> Path:
    """Return the folder of the cache that holds image archives."""
    return cache() / "images"
