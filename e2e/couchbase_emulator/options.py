"""How an emulator is set up."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Edition = Literal["enterprise", "community"]


@dataclass(frozen=True)
class EmulatorOptions:
    """Setup of an emulator; ports of 0 are chosen freely, a given port is the first of one per node."""

    nodes: int = 1
    host: str = "127.0.0.1"
    advertise: str = "127.0.0.1"
    mgmt_port: int = 0
    kv_port: int = 0
    tls: bool = False
    mgmt_tls_port: int = 0
    kv_tls_port: int = 0
    tls_dir: Path | None = None
    tls_names: tuple[str, ...] = ()
    username: str = "Administrator"
    password: str = field(default="password", repr=False)
    memory_quota_mib: int = 4096
    ram_total_mib: int = 16384
    edition: Edition = "enterprise"
    version: str = "8.0.2"
    uninitialised: bool = False
    # Buckets to start with: name -> quota in MiB (ephemeral, nruEviction).
    buckets: tuple[tuple[str, int], ...] = ()
    # Login mechanisms offered and accepted, best first; None: all that the server knows.
    sasl_mechanisms: tuple[str, ...] | None = None
    # Features of HELLO (numbers) that are not granted although asked for.
    refused_features: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ValueError("nodes must be at least 1")
        if self.edition not in ("enterprise", "community"):
            raise ValueError(f"edition must be enterprise or community, not {self.edition!r}")
        if self.tls and self.edition == "community":
            raise ValueError("Community Edition has no TLS ports")
        if self.memory_quota_mib < 256:
            raise ValueError("memory quota must be at least 256 MiB")

    @property
    def is_enterprise(self) -> bool:
        """Whether the cluster is an Enterprise one."""
        return self.edition == "enterprise"

    @property
    def major_minor(self) -> tuple[int, int]:
        """Version as numbers, such as (8, 0)."""
        major, minor, *_ = self.version.split(".")
        return int(major), int(minor)
