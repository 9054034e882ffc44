"""The node refuses to start on a machine where something else has its addresses, or another kube-proxy works."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from e2e.bootstrap import ROOT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

CHECK = "from e2e.cluster import network; network.require_free()"


def check_after(commands: str) -> subprocess.CompletedProcess[str]:
    """Run the check in an empty network of its own, after these shell commands."""
    line = ["unshare", "--net", "sh", "-ec", f'{commands}\nexec "$0" -c "$1"', sys.executable, CHECK]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(line, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)


def test_empty_network_is_free() -> None:
    assert check_after("ip link set lo up").returncode == 0


def test_wider_route_is_no_conflict() -> None:
    commands = "ip link add other type bridge; ip addr add 10.1.2.3/8 dev other; ip link set other up"
    assert check_after(commands).returncode == 0


def test_route_to_the_pods_addresses_is_named() -> None:
    commands = "ip link add other type bridge; ip addr add 10.244.0.9/25 dev other; ip link set other up"
    done = check_after(commands)
    assert "10.244.0.0/25 is routed to other" in done.stderr


def test_tables_of_another_kube_proxy_are_named() -> None:
    assert "nft table `ip kube-proxy` exists" in check_after("nft add table ip kube-proxy").stderr
