"""A /dev/shm that is too small, or cannot be written to, with real servers and workers in a mount namespace."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)

WORK = """
import sys
from pathlib import Path
from lmcache_hostcpu.check.processes import ProcessEnded, Server, WorkerProcess, CHUNK_TOKENS

folder, has_pool, *modes = sys.argv[1:]
server = Server("hostcpu", Path(folder), shared_memory=has_pool == "pool")
try:
    try:
        server.await_up()
    except ProcessEnded as error:
        sys.exit(f"SERVER {error}")
    for number, mode in enumerate(modes):
        worker = WorkerProcess(0, 1, "hostcpu", Path(folder))
        worker.started()
        try:
            print("CONTEXT", worker.call("register", url=server.url, mode=mode)["context"])
            tokens, blocks, others = [number] * 4 * CHUNK_TOKENS, list(range(16)), list(range(32, 48))
            worker.call("fill", blocks=blocks, seed=2)
            stored = worker.call("store", tokens=tokens, blocks=blocks, request=f"store {mode}")
            found = worker.call("lookup", tokens=tokens, request=f"load {mode}", chunks=4)
            loaded = worker.call("load", tokens=tokens, blocks=others, request=f"load {mode}")
            print("MOVED", mode, stored, found, loaded, "WRONG", worker.call("compare", blocks=others, seed=2))
            worker.call("finish")
        except RuntimeError as error:
            print("REFUSED", mode, error)
        worker.stop()
finally:
    server.stop()
    print("SAID", server.log.read_text())
    print("LEFT", [path.name for path in Path("/dev/shm").iterdir() if path.name.startswith("lmcache")])
"""


def isolated(mount: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with another /dev/shm."""
    namespace = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'mount {mount} && exec "$@"', "sh"]
    variables = os.environ | {"LMCACHE_DEVICE_BACKEND": "hostcpu"}
    return subprocess.run(
        [*namespace, *command], env=variables, capture_output=True, text=True, timeout=250, check=False
    )


def run(folder: Path, mount: str, *arguments: str) -> str:
    """Run the work above with another /dev/shm; return everything that was said."""
    done = isolated(mount, sys.executable, "-c", WORK, str(folder), *arguments)
    return done.stdout + done.stderr


def test_small(tmp_path: Path) -> None:
    """The pool of 64 MiB does not fit, nor does the worker's cache of 2 MiB."""
    said = run(tmp_path, "-t tmpfs -o size=1m tmpfs /dev/shm", "pool", "engine_driven", "lmcache_driven")
    assert "Insufficient /dev/shm capacity" in said
    assert "Disabling SHM, falling back to pickle" in said
    assert "CONTEXT EngineDrivenContextPickle\nMOVED engine_driven True 4 True WRONG 0" in said
    assert "REFUSED lmcache_driven OSError: [Errno 28] /dev/shm cannot hold segment" in said
    assert "bytes are free: make it larger (a memory emptyDir in Kubernetes" in said
    assert "LEFT []" in said


def test_read_only(tmp_path: Path) -> None:
    mount = "-t tmpfs tmpfs /dev/shm && mount -o remount,ro /dev/shm"
    said = run(tmp_path, mount, "pool")
    assert "SERVER `lmcache server` did not start" in said
    assert "[Errno 30] /dev/shm cannot hold L1 pool lmcache_l1_pool_check" in said
    assert "it cannot be written to: mount a memory emptyDir there that this user may write to" in said


def test_read_only_for_a_worker() -> None:
    work = "import torch; from lmcache_hostcpu.ipc_wrapper import HostCpuIPCWrapper as W; W.wrap(torch.ones(4, 4))"
    done = isolated("-t tmpfs tmpfs /dev/shm && mount -o remount,ro /dev/shm", sys.executable, "-c", work)
    assert done.returncode == 1
    assert "OSError: [Errno 30] /dev/shm cannot hold lease" in done.stderr
    assert "or do without shared memory (engine_driven, and --shm-name" in done.stderr
