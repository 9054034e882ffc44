"""Command line: run an emulator until it is told to stop."""

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from e2e.couchbase_emulator.emulator import Emulator
from e2e.couchbase_emulator.options import EmulatorOptions
from e2e.couchbase_emulator.running import new_event_loop

_PASSWORD_VARIABLE = "COUCHBASE_EMULATOR_PASSWORD"


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows a default where there is one worth showing."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False, []):
            return action.help
        return super()._get_help_string(action)


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.couchbase_emulator",
        description="In-memory emulator of Couchbase Server for tests and demos: data service and management REST. "
        "Prints one JSON line on standard output when it is ready, then serves until SIGINT or SIGTERM.",
        epilog='Faults are switched with POST /_emulator/faults (full administrator), such as {"http_503": 3}, '
        '{"trickle_seconds": 2} (half of each large value at once, the rest later) or '
        '{"kill_node": 0, "revive_after_seconds": 10}; GET shows all switches. GET /_emulator/counters tells what '
        "clients did.",
        formatter_class=_Formatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--advertise", default="127.0.0.1", help="host name that clients are told to connect to")
    add("--nodes", type=int, default=1, help="number of nodes; node n listens on the given port + n")
    add("--mgmt-port", type=int, default=8091, help="management port, 0 chooses free ones")
    add("--kv-port", type=int, default=11210, help="data port, 0 chooses free ones")
    add("--tls", action="store_true", help="listen on TLS ports as well; any other TLS option implies it")
    add("--mgmt-tls-port", type=int, help="management port with TLS (18091), 0 chooses free ones")
    add("--kv-tls-port", type=int, help="data port with TLS (11207), 0 chooses free ones")
    add("--tls-dir", type=Path, help="folder with ca.pem, server.pem, server.key; made when missing")
    add("--tls-name", action="append", default=[], help="further name or address in the certificate; repeatable")
    add("--username", default="Administrator", help="full administrator")
    add("--password", help=f"its password; better passed in {_PASSWORD_VARIABLE} (unset: 'password')")
    add("--memory-quota-mib", type=int, default=4096, help="data quota of each node")
    add("--ram-total-mib", type=int, default=16384, help="memory that each node reports to have")
    add("--edition", choices=["enterprise", "community"], default="enterprise", help="edition to behave like")
    add("--version", default="8.0.2", help="server version to behave like, such as 7.6.5")
    add("--uninitialised", action="store_true", help="wait for clusterInit, as a fresh node does")
    add(
        "--bucket", action="append", default=[], metavar="NAME[:MIB]", help="ephemeral bucket to start with; repeatable"
    )
    return parser


def options_from(arguments: argparse.Namespace) -> EmulatorOptions:
    """Options of the emulator; raises ValueError for a value that cannot be."""
    tls_options = (arguments.mgmt_tls_port, arguments.kv_tls_port, arguments.tls_dir, arguments.tls_name or None)
    return EmulatorOptions(
        nodes=arguments.nodes,
        host=arguments.host,
        advertise=arguments.advertise,
        mgmt_port=arguments.mgmt_port,
        kv_port=arguments.kv_port,
        tls=arguments.tls or any(option is not None for option in tls_options),
        mgmt_tls_port=18091 if arguments.mgmt_tls_port is None else arguments.mgmt_tls_port,
        kv_tls_port=11207 if arguments.kv_tls_port is None else arguments.kv_tls_port,
        tls_dir=arguments.tls_dir,
        tls_names=tuple(arguments.tls_name),
        username=arguments.username,
        password=arguments.password or os.environ.get(_PASSWORD_VARIABLE) or "password",
        memory_quota_mib=arguments.memory_quota_mib,
        ram_total_mib=arguments.ram_total_mib,
        edition=arguments.edition,
        version=arguments.version,
        uninitialised=arguments.uninitialised,
        buckets=tuple(_bucket(text) for text in arguments.bucket),
    )


def main(argv: list[str] | None = None) -> int:
    """Run; returns the exit status."""
    parser = build_parser()
    try:
        options = options_from(parser.parse_args(argv))
    except ValueError as error:
        parser.error(str(error))
    loop = new_event_loop()
    try:
        return loop.run_until_complete(_serve(options))
    finally:
        loop.close()


async def _serve(options: EmulatorOptions) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with Emulator(options) as emulator:
            print(json.dumps(_description(emulator)), flush=True)
            await stop.wait()
    except OSError as error:
        print(f"cannot listen on {options.host}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _description(emulator: Emulator) -> dict[str, Any]:
    described: dict[str, Any] = {
        "connectionString": emulator.connection_string,
        "management": emulator.management_urls,
        "username": emulator.admin_username,
        "edition": emulator.options.edition,
        "version": emulator.options.version,
        "initialised": emulator.cluster.initialised,
        "faults": emulator.management_urls[0] + "/_emulator/faults",
        "counters": emulator.management_urls[0] + "/_emulator/counters",
    }
    if emulator.options.tls:
        described |= {
            "tlsConnectionString": emulator.tls_connection_string,
            "tlsManagement": emulator.tls_management_urls,
            "ca": str(emulator.ca_path),
        }
    return described


def _bucket(text: str) -> tuple[str, int]:
    name, _, quota = text.partition(":")
    if not name or (quota and not quota.isdigit()):
        raise ValueError(f"--bucket {text!r} is not NAME or NAME:MIB")
    return name, int(quota or 256)
