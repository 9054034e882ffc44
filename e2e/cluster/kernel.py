"""Kernel settings and control groups: what the node changes on the machine, and gives back."""

import json
from pathlib import Path
from typing import Final

from e2e.cluster import configuration, paths

# Forwarding is for Services; the others are what the kubelet sets by itself (its --protect-kernel-defaults page).
_SETTINGS: Final = (
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
_SYSCTL = Path("/proc/sys")
_CGROUPS = Path("/sys/fs/cgroup")
_V2_CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")


def remember_settings() -> None:
    """Record the settings as they are before the node changes them, and switch forwarding on."""
    if not paths.KERNEL_RECORD.exists():
        before = {name: (_SYSCTL / name).read_text().strip() for name in _SETTINGS if (_SYSCTL / name).exists()}
        configuration.write_json(paths.KERNEL_RECORD, before)
    (_SYSCTL / "net/ipv4/ip_forward").write_text("1")


def restore_settings() -> None:
    """Write back every recorded setting that differs."""
    if not paths.KERNEL_RECORD.exists():
        return
    for name, value in json.loads(paths.KERNEL_RECORD.read_text()).items():
        setting = _SYSCTL / name
        if setting.read_text().strip() != value:
            setting.write_text(value)


def cgroup_folders() -> list[Path]:
    """Return the folder of our control group in every hierarchy of the machine, whether it exists or not."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS / paths.CGROUP_NAME]
    # Version 1: one hierarchy per controller; links such as cpu -> cpu,cpuacct name the same one again.
    return sorted({(entry.resolve() / paths.CGROUP_NAME) for entry in _CGROUPS.iterdir() if entry.is_dir()})


def make_cgroup() -> None:
    """Make our control group in every hierarchy; all pods live below it."""
    if (_CGROUPS / "cgroup.controllers").exists():
        available = (_CGROUPS / "cgroup.controllers").read_text().split()
        for controller in _V2_CONTROLLERS:
            if controller in available:
                (_CGROUPS / "cgroup.subtree_control").write_text(f"+{controller}")
    for folder in cgroup_folders():
        folder.mkdir(exist_ok=True)


def pids_in_cgroup() -> set[int]:
    """Return the pids of everything that runs in our control group or below."""
    found: set[int] = set()
    for folder in cgroup_folders():
        for listing in folder.rglob("cgroup.procs"):
            try:
                found.update(int(pid) for pid in listing.read_text().split())
            except OSError:
                continue  # removed meanwhile, or a threaded group
    return found


def remove_cgroup() -> None:
    """Remove our control group, innermost folders first; nothing may run in it any more."""
    for folder in cgroup_folders():
        inner = sorted((path for path in folder.rglob("*") if path.is_dir()), key=lambda path: len(path.parts))
        for path in (*reversed(inner), folder):
            if path.exists():
                path.rmdir()
