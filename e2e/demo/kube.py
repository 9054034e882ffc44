"""kubectl and helm, called as a user calls them, against one kubeconfig."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster import binaries

_FORWARDED = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


class DemoError(Exception):
    """A step of the demo failed; the message says what failed and what the tool printed."""


@dataclass(frozen=True)
class Kube:
    """One cluster, reached through ``kubeconfig``."""

    kubeconfig: Path

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True, timeout_seconds: float = 180
    ) -> str:
        """Run kubectl and return what it printed; raise DemoError when it fails and ``check`` is set."""
        return self._run(binaries.path("kubectl"), arguments, stdin, check, timeout_seconds)

    def helm(self, *arguments: str, timeout_seconds: float = 300) -> str:
        """Run helm and return what it printed; raise DemoError when it fails."""
        return self._run(binaries.path("helm"), arguments, None, True, timeout_seconds)

    def get(self, *arguments: str) -> dict[str, Any] | None:
        """Return one object or list as parsed JSON, or None when it does not exist."""
        text = self.kubectl("get", *arguments, "--ignore-not-found", "-o", "json")
        return dict(json.loads(text)) if text.strip() else None

    def apply(self, manifest: str | dict[str, Any]) -> None:
        """Apply a manifest on the server, strictly, under a field manager of the demo."""
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        self.kubectl("apply", "--server-side", "--field-manager=lmcb-demo", "--validate=strict", "-f", "-", stdin=text)

    def exec(self, namespace: str, pod: str, container: str, *command: str, stdin: str | None = None) -> str:
        """Run a command in a container and return what it printed."""
        flags = ["-i"] if stdin is not None else []
        return self.kubectl("exec", *flags, "-n", namespace, pod, "-c", container, "--", *command, stdin=stdin)

    @contextlib.contextmanager
    def forward(self, namespace: str, target: str, port: int) -> Iterator[str]:
        """Give a local URL that leads to ``port`` of a pod or Service while the block runs."""
        command = [str(binaries.path("kubectl")), "port-forward", "-n", namespace, target, f":{port}"]
        with subprocess.Popen(
            command, env=self._environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                yield f"http://127.0.0.1:{_forwarded_port(process)}"
            finally:
                process.terminate()

    def wait_until_ready(self, resource: str, namespace: str, timeout_seconds: float, condition: str = "Ready") -> None:
        """Wait with ``kubectl wait`` for a condition; raise DemoError with the conditions otherwise."""
        wait = ["wait", f"--for=condition={condition}", resource, "-n", namespace, f"--timeout={timeout_seconds:.0f}s"]
        try:
            self.kubectl(*wait, timeout_seconds=timeout_seconds + 15)
        except DemoError as error:
            seen = self.kubectl("get", resource, "-n", namespace, "-o", "yaml", check=False)
            pods = self.kubectl("get", "pods", "-n", namespace, "-o", "wide", check=False)
            raise DemoError(f"{resource} did not become {condition}: {error}\n{seen}\n{pods}") from error

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def _run(
        self, program: Path, arguments: tuple[str, ...], stdin: str | None, check: bool, timeout_seconds: float
    ) -> str:
        try:
            done = subprocess.run(
                [str(program), *arguments],
                input=stdin,
                env=self._environment(),
                capture_output=True,
                text=True,
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DemoError(
                f"{program.name} {' '.join(arguments[:3])} took longer than {timeout_seconds:.0f} s"
            ) from error
        if check and done.returncode:
            raise DemoError(f"{program.name} {' '.join(arguments[:4])}: {(done.stderr or done.stdout).strip()}")
        return done.stdout


def _forwarded_port(process: subprocess.Popen[str]) -> int:
    deadline = time.monotonic() + 30
    said = ""
    while process.stdout and time.monotonic() < deadline and (line := process.stdout.readline()):
        said += line
        if found := _FORWARDED.search(line):
            return int(found.group(1))
    raise DemoError(f"kubectl port-forward did not start: {said.strip()}")
