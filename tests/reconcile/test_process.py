"""The operator as it is started in its image: settings from the environment, a log, an end on SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

from tests.reconcile.world import until

if TYPE_CHECKING:
    from tests.reconcile.world import World


async def start_operator(world: World, **environment: str) -> asyncio.subprocess.Process:
    """Start the operator as a process that logs JSON to a pipe."""
    variables = {
        "LMCB_KUBECONFIG": str(world.server.kubeconfig),
        "LMCB_NAMESPACES": world.namespace,
        "LMCB_HTTP_HOST": "127.0.0.1",
        "LMCB_HTTP_PORT": "0",
        "LMCB_LOG_FORMAT": "json",
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "couchbase_lm_operator",
        "run",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_it_runs_from_the_environment_and_ends_on_sigterm(world: World) -> None:
    process = await start_operator(world)
    try:
        await world.create()
        await until(lambda: world.cluster.get("Deployment", world.namespace, "demo"), seconds=40)
        await world.until_condition("CredentialsReady", "True")
    finally:
        process.send_signal(signal.SIGTERM)
    out, log = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0
    lines = [json.loads(line) for line in log.decode().splitlines()]
    assert {"operator started", "applied", "asked Couchbase"} <= {line["message"] for line in lines}
    assert {line["level"] for line in lines} <= {"INFO", "WARNING"}
    assert world.couchbase.admin_password not in (out + log).decode()


async def test_a_wrong_setting_is_one_sentence(world: World) -> None:
    process = await start_operator(world, LMCB_WORKERS="many")
    out, log = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode not in {0, None}
    text = (out + log).decode()
    assert "LMCB_WORKERS" in text
    assert "Traceback" not in text
