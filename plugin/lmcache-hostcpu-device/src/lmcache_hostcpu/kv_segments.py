"""Shared memory that disappears with its owner.

A worker that is killed cannot remove what it created in ``/dev/shm``, and a pod keeps that folder when a container
starts again. So every owner also holds a lease: a file with a lock that the kernel drops with the process, whatever
ends it, seen alike from every container that mounts the folder. Whoever gets the lock of a lease knows that its owner
is gone and removes what that owner has left.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import itertools
import mmap
import os
import secrets
import shutil
import threading
from pathlib import Path

from lmcache.logging import init_logger

logger = init_logger(__name__)

FOLDER = Path("/dev/shm")  # noqa: S108  # where the C library puts POSIX shared memory on Linux
PREFIX = "lmcache_hostcpu_"
_LEASE_SUFFIX = ".lease"


def explained(error: OSError, what: str, size_bytes: int) -> OSError:
    """Return ``error`` with what it means for shared memory and what to do about it."""
    advice = "check how it is mounted"
    if error.errno in (errno.ENOSPC, errno.ENOMEM):
        free_bytes = shutil.disk_usage(FOLDER).free
        advice = (
            f"{free_bytes} bytes are free: make it larger (a memory emptyDir in Kubernetes, --shm-size elsewhere) "
            f"or set lmcache.mp.mp_transfer_mode to engine_driven"
        )
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        advice = (
            "it cannot be written to: mount a memory emptyDir there that this user may write to, "
            'or do without shared memory (engine_driven, and --shm-name "" at the server)'
        )
    code = errno.EIO if error.errno is None else error.errno
    return OSError(code, f"{FOLDER} cannot hold {what} of {size_bytes} bytes ({error.strerror}); {advice}")


class SegmentOwner:
    """Creates segments of shared memory for this process.

    Raises:
        OSError: ``/dev/shm`` cannot be written to.
    """

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._numbers = itertools.count()
        while True:
            self.token = secrets.token_hex(6)
            self._lease = FOLDER / f"{PREFIX}{self.token}{_LEASE_SUFFIX}"
            try:
                self._descriptor = os.open(self._lease, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise explained(error, f"lease {self._lease.name}", 0) from error
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            if os.fstat(self._descriptor).st_nlink:
                break
            # Somebody who looked for abandoned leases was faster than our lock and has removed this one.
            os.close(self._descriptor)
        atexit.register(self.close)

    def create(self, size_bytes: int) -> tuple[str, mmap.mmap]:
        """Create a segment; return its POSIX name and its memory, zeroed.

        Raises:
            OSError: ``/dev/shm`` has no room for it, or cannot be written to.
        """
        name = f"{PREFIX}{self.token}_{next(self._numbers)}"
        path = FOLDER / name
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise explained(error, f"segment {name}", size_bytes) from error
        try:
            # Takes the room now: a sparse segment kills the process with SIGBUS when a page is used that has none.
            os.posix_fallocate(descriptor, 0, size_bytes)
            return f"/{name}", mmap.mmap(descriptor, size_bytes)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise explained(error, f"segment {name}", size_bytes) from error
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Remove everything of this owner; what is mapped stays valid until it is unmapped."""
        if os.getpid() != self.process_id or self._descriptor < 0:
            return
        _remove_of(self.token)
        os.close(self._descriptor)
        self._descriptor = -1


def remove(name: str) -> None:
    """Remove the segment of a POSIX name; no error when it is gone already."""
    (FOLDER / name.lstrip("/")).unlink(missing_ok=True)


def reclaim_abandoned() -> list[str]:
    """Remove what dead owners have left; return the tokens of those owners."""
    gone = []
    for lease in sorted(FOLDER.glob(f"{PREFIX}*{_LEASE_SUFFIX}")):
        try:
            descriptor = os.open(lease, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # removed meanwhile, or another user's
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            token = lease.name.removeprefix(PREFIX).removesuffix(_LEASE_SUFFIX)
            _remove_of(token)
            gone.append(token)
        except BlockingIOError:
            pass  # alive
        finally:
            os.close(descriptor)
    if gone:
        logger.warning("Removed shared memory of %d process(es) that ended without doing so", len(gone))
    return gone


class OwnerWatch:
    """Removes the segments of owners as soon as they end, in the process that maps them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: set[str] = set()

    def follow(self, segment_name: str) -> None:
        """Watch the owner of a segment; names that no owner here has made are ignored."""
        token = owner_of(segment_name)
        if token is None:
            return
        with self._lock:
            if token in self._watched:
                return
            self._watched.add(token)
        # A blocked lock costs nothing, and the kernel wakes it whatever ends the owner.
        threading.Thread(target=self._await_end, args=(token,), name=f"hostcpu-owner-{token}", daemon=True).start()

    def _await_end(self, token: str) -> None:
        try:
            descriptor = os.open(FOLDER / f"{PREFIX}{token}{_LEASE_SUFFIX}", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if _remove_of(token):
                    logger.warning("A worker ended without unregistering; removed its shared memory")
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            pass  # ended in order before we looked
        finally:
            with self._lock:
                self._watched.discard(token)


def owner_of(segment_name: str) -> str | None:
    """Return the token of the owner of a segment, or None when the name is not one of ours."""
    name = segment_name.lstrip("/")
    return name.removeprefix(PREFIX).partition("_")[0] if name.startswith(PREFIX) else None


def _remove_of(token: str) -> int:
    """Remove the segments of an owner, then its lease; return the number of segments."""
    segments = list(FOLDER.glob(f"{PREFIX}{token}_*"))
    for path in segments:
        path.unlink(missing_ok=True)
    (FOLDER / f"{PREFIX}{token}{_LEASE_SUFFIX}").unlink(missing_ok=True)
    return len(segments)
