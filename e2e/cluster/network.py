"""The pod network: one bridge of the node's own, routes between pods, host and Services, and a closed door to others.

Pods get no way out of the machine. Everything made here carries a name of ours, except kube-proxy's nft tables, whose
names are fixed (https://kubernetes.io/docs/reference/networking/virtual-ips/#proxy-mode-nftables).
"""

import ipaddress
import json
import subprocess
from pathlib import Path
from typing import Final

from e2e.cluster import configuration, paths
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError

GUARD_TABLE: Final = ("inet", paths.NETWORK_NAME)
PROXY_TABLES: Final = (("ip", "kube-proxy"), ("ip6", "kube-proxy"))
_CLOSED_PORTS = (paths.API_PORT, paths.KUBELET_PORT)


def require_free() -> None:
    """Check, before the node is made, that nothing else on the machine has its networks or kube-proxy's tables.

    Raises:
        ClusterError: something has; the message names it.
    """
    own = [ipaddress.IPv4Network(network) for network in (paths.POD_CIDR, paths.SERVICE_CIDR)]
    for route in json.loads(run(["ip", "-json", "-4", "route", "show"])):
        taken = ipaddress.IPv4Network("0.0.0.0/0" if route["dst"] == "default" else route["dst"])
        if any(taken.subnet_of(network) for network in own):
            raise ClusterError(f"{taken} is routed to {route.get('dev')}; the node needs it, stop what uses it first")
    for family, table in PROXY_TABLES:
        if has_table(family, table):
            raise ClusterError(f"nft table `{family} {table}` exists: another kube-proxy works on this machine")


def ensure() -> None:
    """Make bridge, address, guard table and CNI configuration; what is there already stays."""
    if not has_bridge():
        run(["ip", "link", "add", paths.BRIDGE, "type", "bridge"])
    length = paths.POD_CIDR.partition("/")[2]
    run(["ip", "address", "replace", f"{paths.NODE_ADDRESS}/{length}", "dev", paths.BRIDGE])
    run(["ip", "link", "set", paths.BRIDGE, "up"])
    _guard()
    _write_cni_configuration()


def remove() -> None:
    """Remove bridge and nft tables; does nothing where they are gone."""
    for family, table in (GUARD_TABLE, *PROXY_TABLES):
        if has_table(family, table):
            run(["nft", "delete", "table", family, table])
    if has_bridge():
        run(["ip", "link", "delete", paths.BRIDGE])


def has_bridge() -> bool:
    """Tell whether the node's bridge exists."""
    return (Path("/sys/class/net") / paths.BRIDGE).exists()


def has_table(family: str, table: str) -> bool:
    """Tell whether an nft table exists."""
    return subprocess.run(["nft", "list", "table", family, table], capture_output=True, check=False).returncode == 0


def _guard() -> None:
    family, table = GUARD_TABLE
    ports = ", ".join(str(port) for port in _CLOSED_PORTS)
    # "add" and "flush" first: the table may be there from an earlier run.
    run(
        ["nft", "-f", "-"],
        stdin=f"""
        add table {family} {table}
        flush table {family} {table}
        table {family} {table} {{
          chain input {{
            type filter hook input priority filter; policy accept;
            iifname != {{ "lo", "{paths.BRIDGE}" }} tcp dport {{ {ports} }} drop
          }}
        }}
        """,
    )


def _write_cni_configuration() -> None:
    # Format: https://www.cni.dev/plugins/current/main/bridge/
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": paths.POD_CIDR, "gateway": paths.NODE_ADDRESS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(paths.CNI_ADDRESSES),
    }
    bridge = {
        "type": "bridge",
        "bridge": paths.BRIDGE,
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": addresses,
    }
    network = {"cniVersion": "0.4.0", "name": paths.NETWORK_NAME, "plugins": [bridge]}
    configuration.write_text(paths.CNI_CONFIG / "10-bridge.conflist", json.dumps(network, indent=2))
