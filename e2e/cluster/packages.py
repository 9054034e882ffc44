"""Debian packages the node needs."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import CLUSTER

NODE_PACKAGES = (
    *("etcd-server", "containerd", "runc", "containernetworking-plugins"),
    *("nftables", "iproute2", "mount", "ca-certificates"),
)
_POLICY = Path("/usr/sbin/policy-rc.d")


def ensure(wanted: tuple[str, ...] = NODE_PACKAGES) -> None:
    """Install the packages that are missing, without starting the services they bring.

    Raises:
        ClusterError: the machine is no Debian, the caller is not root, or apt failed.
    """
    missing = [package for package in wanted if not _is_installed(package)]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(f"install these by hand, apt-get was not found: {', '.join(missing)}")
    if os.geteuid() != 0:
        raise ClusterError(f"run this as root: packages are to be installed ({', '.join(missing)})")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with CLUSTER.step(f"installing {', '.join(missing)}"), _services_stay_down():
        run(["apt-get", "update", "-q"], env=environment)
        run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *missing], env=environment)


def _is_installed(package: str) -> bool:
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout == "installed"


@contextmanager
def _services_stay_down() -> Iterator[None]:
    # Debian's documented switch (invoke-rc.d(8)): 101 forbids to start. An existing policy is the owner's own.
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()
