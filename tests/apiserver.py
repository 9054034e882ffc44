"""A private etcd and kube-apiserver on free ports: a real API server for tests that need no kubelet.

No controller runs beside it: Deployments get no pods and owner references collect nothing, so tests set the
status that controllers would set. Every write is in the audit log: ``writes_since`` proves that nothing was
written.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from e2e.cluster import binaries

if TYPE_CHECKING:
    from collections.abc import Callable

_START_SECONDS = 60.0
_ATTEMPTS = 3
_ADMIN_TOKEN = "admin-token-of-the-private-test-server"
OPERATOR_TOKEN = "operator-token-of-the-private-test-server"
OPERATOR_USER = "operator"
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "None"},
    ],
}


@dataclass
class ApiServer:
    """The running pair; use as a context manager. Beside the administrator there is a user without rights."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="lmcb-apiserver-")))
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    port: int = 0
    _command: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Return where the server listens."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    def __enter__(self) -> Self:
        """Start both; a port that somebody took meanwhile is chosen anew."""
        for attempt in range(_ATTEMPTS):
            try:
                self._start()
            except RuntimeError:
                self._stop_processes()
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return self
        raise AssertionError("unreachable")

    def __exit__(self, *_: object) -> None:
        """Stop both and remove the folder."""
        self._stop_processes()
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop_serving(self) -> None:
        """Stop the API server; etcd keeps what was stored."""
        _stop(self.processes.pop())

    def serve_again(self) -> None:
        """Start the API server again, at the same address."""
        self._spawn("kube-apiserver", self._command)
        self._wait_until_ready()

    def audit_position(self) -> int:
        """Return the mark for a later ``writes_since``."""
        log = self.folder / "audit.log"
        return log.stat().st_size if log.exists() else 0

    def writes_since(self, position: int, *, namespace: str = "") -> list[str]:
        """Return every write after ``position`` as "verb resource/name by agent"; dry runs do not count."""
        with (self.folder / "audit.log").open("rb") as log:
            log.seek(position)
            entries = [json.loads(line) for line in log if line.endswith(b"\n")]
        return [line for entry in entries if (line := _write(entry, namespace)) is not None]

    def kubeconfig_for(self, token: str, path: Path) -> Path:
        """Write a kubeconfig that logs in with a bearer token."""
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {
                            "name": "test",
                            "cluster": {
                                "server": self.url,
                                "certificate-authority": str(self.folder / "certs" / "apiserver.crt"),
                            },
                        }
                    ],
                    "users": [{"name": "test", "user": {"token": token}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                    "current-context": "test",
                }
            )
        )
        path.chmod(0o600)
        return path

    def _start(self) -> None:
        etcd_port, peer_port, self.port = _free_ports(3)
        data = self.folder / "etcd"
        shutil.rmtree(data, ignore_errors=True)
        etcd_url, peer_url = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
        self._spawn(
            "etcd",
            [
                shutil.which("etcd") or "etcd",
                f"--data-dir={data}",
                f"--listen-client-urls={etcd_url}",
                f"--advertise-client-urls={etcd_url}",
                f"--listen-peer-urls={peer_url}",
                f"--initial-advertise-peer-urls={peer_url}",
                f"--initial-cluster=default={peer_url}",
                "--unsafe-no-fsync",
            ],
        )
        key = self.folder / "service-account.key"
        key.write_bytes(
            rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        tokens = self.folder / "tokens.csv"
        tokens.write_text(
            f'{_ADMIN_TOKEN},admin,admin,"system:masters"\n{OPERATOR_TOKEN},{OPERATOR_USER},{OPERATOR_USER}\n'
        )
        policy = self.folder / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
        self._command = [
            str(binaries.path("kube-apiserver")),
            f"--etcd-servers={etcd_url}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder / 'certs'}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.97.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            # no controller makes the default service account and its CA ConfigMap that this plugin waits for
            "--disable-admission-plugins=ServiceAccount",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.folder / 'audit.log'}",
            "--audit-log-mode=blocking-strict",
        ]
        self._spawn("kube-apiserver", self._command)
        self._wait_until_ready()
        self.kubeconfig_for(_ADMIN_TOKEN, self.kubeconfig)

    def _spawn(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder))

    def _wait_until_ready(self) -> None:
        import ssl

        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {_ADMIN_TOKEN}"})

        def is_ready() -> bool:
            try:
                with urllib.request.urlopen(request, timeout=2, context=context) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        deadline = time.monotonic() + _START_SECONDS
        while not is_ready():
            dead = [process for process in self.processes if process.poll() is not None]
            if dead or time.monotonic() > deadline:
                raise RuntimeError("the private API server did not start:\n" + self._log_tails())
            time.sleep(0.1)

    def _log_tails(self) -> str:
        return "\n".join(
            f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}" for log in sorted(self.folder.glob("*.log"))
        )

    def _stop_processes(self) -> None:
        for process in reversed(self.processes):
            _stop(process)
        self.processes.clear()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _write(entry: dict[str, Any], namespace: str) -> str | None:
    target = entry.get("objectRef") or {}
    if "dryRun=" in entry["requestURI"] or namespace not in {"", target.get("namespace")}:
        return None
    if target.get("resource") in {"leases", "endpointslices", "endpoints"}:
        return None
    return f"{entry['verb']} {target.get('resource')}/{target.get('name')} by {entry.get('userAgent')}"


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def eventually(check: Callable[[], Any], *, seconds: float = 20.0, interval_seconds: float = 0.1) -> Any:
    """Return the first truthy result of ``check``; fail with its last value after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        result = check()
        if result:
            return result
        assert time.monotonic() < deadline, f"not so after {seconds} s: last saw {result!r}"
        time.sleep(interval_seconds)
