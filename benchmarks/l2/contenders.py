"""Who is measured: each starts its server, runs one client process to its end, and returns that client's rounds.

Every run has a fresh server, whose memory has been touched, and fresh keys. A run that failed, missed an object, timed
out or delivered other bytes than were stored is an error and no figure.
"""

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.l2.servers import (
    ADMINISTRATOR,
    BUCKET,
    PASSWORD_VARIABLE,
    BenchmarkError,
    emulator,
    memory_folder,
    redis,
)
from benchmarks.l2.warming import warm_couchbase, warm_redis
from benchmarks.l2.workloads import Workload
from e2e.bootstrap import ROOT
from e2e.engine import environment

FAILED_CLIENT_LOG = ROOT / ".local" / "bench" / "failed-client.log"
OPERATIONS = ("store", "lookup", "load")
_CLIENT_SECONDS = 600.0
_PLUGIN_SOURCE = ROOT / "plugin" / "couchbase-lm-cache" / "src"
_LAST_LINES = 20


@dataclass(frozen=True)
class Round:
    """One task of all objects; memory is what the process held at its peak beyond L1 and itself."""

    seconds: float
    cpu_seconds: float
    peak_extra_rss_bytes: int


Rounds = dict[str, list[Round]]


@contextmanager
def _couchbase(transport: str, workload: Workload) -> Iterator[dict[str, Any]]:
    with emulator() as server:
        warm_couchbase(server.kv_port, server.password, workload)
        params = {
            "connection_string": server.connection_string,
            "username": ADMINISTRATOR,
            "password_file": str(server.password_file),
            "bucket_name": BUCKET,
            "key_prefix": f"bench-{uuid.uuid4().hex[:8]}",
            "transport": transport,
        }
        yield {
            "type": "plugin",
            "module_path": "couchbase_lm_cache.l2_adapter",
            "class_name": "CouchbaseL2Adapter",
            "adapter_params": params,
        }


@contextmanager
def _resp(workload: Workload) -> Iterator[dict[str, Any]]:
    with redis() as port:
        warm_redis(port, workload)
        yield {"type": "resp", "host": "127.0.0.1", "port": port}


@contextmanager
def _fs(_: Workload) -> Iterator[dict[str, Any]]:
    with memory_folder() as folder:
        yield {"type": "fs", "base_path": str(folder)}


_ADAPTERS: dict[str, Callable[[Workload], Any]] = {
    "direct": partial(_couchbase, "direct"),
    "sdk": partial(_couchbase, "sdk"),
    "resp": _resp,
    "fs": _fs,
}
FLOOR = "floor"
CONTENDERS = (*_ADAPTERS, FLOOR)
TITLES = {
    "direct": "couchbase-lm-cache, direct",
    "sdk": "couchbase-lm-cache, sdk",
    "resp": "LMCache resp on Redis",
    "fs": "LMCache fs on tmpfs",
    FLOOR: "bare sockets (floor)",
}


def measure(contender: str, workload: Workload) -> Rounds:
    """Run a contender once and return its measured rounds by operation.

    Raises:
        BenchmarkError: the run failed, or not every object came back as it was stored.
    """
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "rounds.json")
        if contender == FLOOR:
            _run_floor(workload, record)
        else:
            with _ADAPTERS[contender](workload) as adapter:
                _run_lmcache(contender, adapter, workload, record)
        return _split(contender, json.loads(record.read_text()), workload)


def _run_floor(workload: Workload, record: Path) -> None:
    with emulator() as server:
        warm_couchbase(server.kv_port, server.password, workload)
        command = [sys.executable, "-m", "benchmarks.l2.floor", str(record), "--kv-port", str(server.kv_port)]
        command += ["--objects", str(workload.objects), "--object-bytes", str(workload.object_bytes)]
        command += ["--rounds", str(workload.total_rounds)]
        _run(FLOOR, command, {PASSWORD_VARIABLE: server.password})


def _run_lmcache(contender: str, adapter: dict[str, Any], workload: Workload, record: Path) -> None:
    summary = record.with_name("summary.json")
    command = [str(environment.python()), "-m", "benchmarks.l2.observed", str(record), "bench", "l2"]
    command += ["--num-keys", str(workload.objects), "--data-size-kb", str(workload.object_bytes >> 10)]
    command += ["--rounds", str(workload.rounds), "--warmup-rounds", str(workload.warmup_rounds)]
    command += ["--lookup-max-hit-rate", "1.0", "--no-skip-verify"]
    command += ["--format", "json", "--output", str(summary)]
    python_path = os.pathsep.join((str(ROOT), str(_PLUGIN_SOURCE)))
    _run(contender, command, {"L2_ADAPTER_JSON": json.dumps(adapter), "PYTHONPATH": python_path})
    _refuse_incomplete(contender, json.loads(summary.read_text()))


def _run(contender: str, command: list[str], variables: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_CLIENT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"{contender}: the client did not end within {_CLIENT_SECONDS:g} s") from None
    if done.returncode:
        said = "\n".join(done.stdout.strip().splitlines()[-_LAST_LINES:])
        FAILED_CLIENT_LOG.parent.mkdir(parents=True, exist_ok=True)
        FAILED_CLIENT_LOG.write_text(done.stdout)
        raise BenchmarkError(
            f"{contender}: the client ended with status {done.returncode}; its whole output is in "
            f"{FAILED_CLIENT_LOG}:\n{said}"
        )


def _refuse_incomplete(contender: str, summary: dict[str, Any]) -> None:
    for name, section in summary["metrics"].items():
        if not name.startswith("op_"):
            continue
        if section["rounds_timed_out"] or section["total_success"] != section["total_keys"]:
            raise BenchmarkError(
                f"{contender}: {section['operation']} succeeded for {section['total_success']} of "
                f"{section['total_keys']} objects, {section['rounds_timed_out']} rounds timed out"
            )


def _split(contender: str, rounds: list[dict[str, Any]], workload: Workload) -> Rounds:
    per_operation = workload.total_rounds
    if len(rounds) != per_operation * len(OPERATIONS):
        raise BenchmarkError(f"{contender}: {len(rounds)} rounds were seen, not {per_operation} of each operation")
    result: Rounds = {}
    for number, operation in enumerate(OPERATIONS):
        own = [Round(**one) for one in rounds[number * per_operation : (number + 1) * per_operation]]
        peak = max(one.peak_extra_rss_bytes for one in own)
        # A peak is a peak, in warm-up rounds too.
        result[operation] = [Round(one.seconds, one.cpu_seconds, peak) for one in own[workload.warmup_rounds :]]
    return result
