"""Mounts below our folders."""

import ctypes
import os
import shutil
from pathlib import Path

from e2e.cluster.errors import ClusterError

_DETACH = 2  # MNT_DETACH of umount2(2)


def below(root: Path) -> list[Path]:
    """Return every mount point at or below a folder, innermost first."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # Field 5; blanks and the like are written as octal escapes (proc(5)).
        point = Path(line.split()[4].encode().decode("unicode_escape"))
        if point.is_relative_to(root):
            found.append(point)
    return sorted(found, key=lambda point: len(point.parts), reverse=True)


def unmount_below(root: Path) -> None:
    """Unmount everything at or below a folder; what is still in use is detached."""
    libc = ctypes.CDLL(None, use_errno=True)
    while points := below(root):
        for point in points:
            if libc.umount2(os.fsencode(point), 0) != 0 and libc.umount2(os.fsencode(point), _DETACH) != 0:
                number = ctypes.get_errno()
                raise ClusterError(f"{point} could not be unmounted: {os.strerror(number)}")


def remove_tree(root: Path) -> None:
    """Remove a folder with all it holds, after every mount in it: no file of a mounted folder is touched.

    Raises:
        ClusterError: a mount stays, so that nothing is removed.
    """
    unmount_below(root)
    if root.exists():
        shutil.rmtree(root)
