"""Bring the node up, tell how it is, take it down.

`up` starts what does not run and leaves alone what does, so it is the first start, the repair and the no-operation in
one. The pods of a node whose programs were killed go on in their shims and are found again by containerd.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from e2e.bootstrap import ROOT
from e2e.cluster import (
    binaries,
    configuration,
    containerd,
    control_plane,
    dns,
    images,
    kernel,
    network,
    node,
    packages,
    paths,
    pki,
    removal,
    traces,
)
from e2e.cluster.errors import ClusterError
from e2e.cluster.locks import exclusive
from e2e.cluster.processes import Service
from e2e.cluster.progress import CLUSTER

# Raised when what an older version left in STATE or DATA is of no use to this one.
_STATE_FORMAT = 1
_WAITING = "waiting for another command that works on the node"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class NodeRecord:
    """Who made the node, in which boot of the machine, in which format of its state."""

    owner: Path
    boot: str
    state_format: int

    @property
    def is_usable(self) -> bool:
        """Tell whether what it left can be continued: same boot, same format."""
        return self.boot == _boot() and self.state_format == _STATE_FORMAT


def services() -> tuple[Service, ...]:
    """Return every program of the node, in the order in which they start."""
    return (*control_plane.services(), containerd.service(), *node.services(), dns.service())


def is_healthy() -> bool:
    """Tell whether every program runs and answers and the node is Ready."""
    return (
        (record := read_record()) is not None
        and record.is_usable
        and all(service.process() is not None for service in services())
        and containerd.is_ready()
        and node.is_ready()
        and dns.is_ready()
    )


def up() -> None:
    """Make the node, repair it, or adopt it, and write this checkout's kubeconfig.

    Raises:
        ClusterError: the caller is not root, a program could not be built, or one did not become ready.
    """
    _require_root()
    with exclusive(paths.LOCK_FILE, waiting=_WAITING):
        if not is_healthy():
            packages.ensure()
            binaries.ensure()
            _start()
        record = read_record()
        configuration.write_kubeconfig(pki.ADMIN, paths.kubeconfig())
    if record is not None and record.owner != ROOT:
        CLUSTER.say(f"the node belongs to the checkout {record.owner}; this one uses it")
    CLUSTER.say(f"the node is ready: export KUBECONFIG={paths.kubeconfig()}")


def down() -> None:
    """Remove the node and all it left, unless a living checkout other than this one made it.

    Raises:
        ClusterError: the caller is not root, or something could not be removed.
    """
    _require_root()
    with exclusive(paths.LOCK_FILE, waiting=_WAITING):
        paths.kubeconfig().unlink(missing_ok=True)
        record = read_record()
        if record is not None and record.owner != ROOT and record.owner.exists() and record.is_usable:
            CLUSTER.say(f"the node belongs to the checkout {record.owner} and stays; take it down there")
            return
        _remove()


def status() -> bool:
    """Print how each program is, and return whether the node is healthy."""
    record = read_record()
    CLUSTER.say(f"made by {record.owner}" if record else "no node on this machine")
    for service in services() if record else ():
        process = service.process()
        CLUSTER.say(
            f"{service.name:<24} {f'runs, pid {process.pid}' if process else f'does not run, see {service.log}'}"
        )
    is_well = is_healthy()
    CLUSTER.say("healthy" if is_well else "not healthy: `make cluster` starts or repairs it")
    return is_well


def read_record() -> NodeRecord | None:
    """Return the record of the node on this machine, or None when there is none that can be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        document = json.loads(paths.NODE_RECORD.read_text())
        return NodeRecord(Path(document["owner"]), document["boot"], document["stateFormat"])
    return None


def _start() -> None:
    record = read_record()
    if record is None or not record.is_usable:
        # Leftovers of another boot, another format, or a run killed before its record was written.
        _remove()
        network.require_free()
        record = NodeRecord(ROOT, _boot(), _STATE_FORMAT)
    elif not record.owner.exists():
        record = NodeRecord(ROOT, _boot(), _STATE_FORMAT)
    document = {"owner": str(record.owner), "boot": record.boot, "stateFormat": record.state_format}
    configuration.write_json(paths.NODE_RECORD, document)
    with CLUSTER.step("starting the node"):
        traces.remember()
        kernel.remember_settings()
        kernel.make_cgroup()
        network.ensure()
        pki.ensure()
        for folder in (paths.ETCD_DATA, paths.CONTAINERD_ROOT, paths.KUBELET_ROOT, paths.POD_LOGS):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        control_plane.start()
        containerd.start()
        images.load_pause()
        node.start()
        dns.start()
        control_plane.await_controllers()


def _remove() -> None:
    if paths.STATE.exists() or paths.DATA.exists() or network.has_bridge():
        with CLUSTER.step("removing the node"):
            removal.remove_node([service.record for service in services()])


def _require_root() -> None:
    if os.geteuid() != 0:
        raise ClusterError("the local node needs root: run the command as root")


def _boot() -> str:
    return _BOOT_ID.read_text().strip()
