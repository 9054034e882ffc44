"""Switch the emulator's faults over its administration port."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import httpx

from e2e.demo import manifests
from e2e.demo.kube import DemoError, Kube
from tests.journey.waiting import until

_REVIVAL_SECONDS = 150


@dataclass(frozen=True)
class EmulatorFaults:
    """The fault switches of the emulator of one installation."""

    kube: Kube
    place: manifests.Place
    admin_password: str

    def kill_node(self, revive_after_seconds: float) -> None:
        """Drop every connection of the only node and refuse new ones for a while; it comes back empty."""
        self._post({"kill_node": 0, "revive_after_seconds": revive_after_seconds})

    def put_off_writes(self) -> None:
        """Answer every write with "try again later"; reads work."""
        self._post({"tmpfail": -1})

    def clear(self) -> None:
        """Behave well again; a killed node is waited for."""
        until(self._is_cleared, _REVIVAL_SECONDS)

    def _is_cleared(self) -> bool:
        try:
            self._post({"clear": True})
        except (httpx.HTTPError, DemoError):
            return False
        return True

    def write_count(self) -> int:
        """Return how many writes, over REST and KV, the emulator has taken since its start."""
        with self._management() as url:
            counters = httpx.get(f"{url}/_emulator/counters", auth=self._login(), timeout=30).raise_for_status().json()
        return int(counters["restWrites"] + counters["kvWrites"])

    def _post(self, switches: dict[str, object]) -> None:
        with self._management() as url:
            httpx.post(f"{url}/_emulator/faults", json=switches, auth=self._login(), timeout=30).raise_for_status()

    def _login(self) -> tuple[str, str]:
        return manifests.ADMIN_USER, self.admin_password

    def _management(self) -> AbstractContextManager[str]:
        return self.kube.forward(self.place.couchbase, f"svc/{manifests.COUCHBASE}", manifests.MANAGEMENT_PORT)
