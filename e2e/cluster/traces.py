"""Files that the programs of the node put at fixed places outside our folders, and their removal.

No program can be told another place for these. A folder goes only when it was not there before the node and is empty.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from e2e.cluster import configuration, paths

_CNI_RESULTS: Final = Path("/var/lib/cni/results")
_CONTAINER_LOGS: Final = Path("/var/log/containers")
_DEVICE_PLUGIN_SOCKET: Final = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
_SHIM_SOCKETS: Final = Path("/run/containerd/s")
# Innermost first.
_FOLDERS: Final = (
    *(_CNI_RESULTS, _CNI_RESULTS.parent, _CONTAINER_LOGS, _DEVICE_PLUGIN_SOCKET.parent),
    *(_DEVICE_PLUGIN_SOCKET.parent.parent, _SHIM_SOCKETS, _SHIM_SOCKETS.parent),
)


def remember() -> None:
    """Record which of the fixed places are there before the node is."""
    if not paths.TRACES_RECORD.exists():
        known = [str(path) for path in (*_FOLDERS, _DEVICE_PLUGIN_SOCKET) if path.exists()]
        configuration.write_json(paths.TRACES_RECORD, {"present": known})


def remove() -> None:
    """Remove what the node left at the fixed places; its programs must have ended, its own folders must be there."""
    if not paths.TRACES_RECORD.exists():
        return
    present = {Path(path) for path in json.loads(paths.TRACES_RECORD.read_text())["present"]}
    for path in _files():
        path.unlink(missing_ok=True)
    if _DEVICE_PLUGIN_SOCKET not in present:
        _DEVICE_PLUGIN_SOCKET.unlink(missing_ok=True)
    for folder in _FOLDERS:
        if folder not in present and folder.exists() and not any(folder.iterdir()):
            folder.rmdir()


def _files() -> Iterator[Path]:
    # CNI results are named after network, sandbox and interface; the loopback's only share the sandbox with ours.
    for result in list(_CNI_RESULTS.glob(f"{paths.NETWORK_NAME}-*-eth0")):
        sandbox = result.name.removeprefix(f"{paths.NETWORK_NAME}-").removesuffix("-eth0")
        yield _CNI_RESULTS / f"cni-loopback-{sandbox}-lo"
        yield result
    if _CONTAINER_LOGS.exists():
        for link in list(_CONTAINER_LOGS.iterdir()):
            if link.is_symlink() and link.readlink().is_relative_to(paths.POD_LOGS):
                yield link
    # Shims have ended by now: theirs are the sockets that nobody listens on.
    listening = Path("/proc/net/unix").read_text()
    if _SHIM_SOCKETS.exists():
        yield from [socket for socket in _SHIM_SOCKETS.iterdir() if str(socket) not in listening]
