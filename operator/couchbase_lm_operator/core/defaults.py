"""What the operator brings along to every plan: tested images and versions, caps, and what admins allow."""

from __future__ import annotations

from dataclasses import dataclass, replace

GIB = 1 << 30


@dataclass(frozen=True)
class Defaults:
    """Release and installation dependent values; everything else comes from the resource.

    ``engine_images`` maps a vendor (``NVIDIA``, ``CPU``) to the tested image. ``vllm_version`` and
    ``lmcache_version`` are those of the tested images. ``max_l1_bytes`` caps a worked-out L1.
    """

    operator_image: str
    engine_images: dict[str, str]
    vllm_version: str
    lmcache_version: str
    max_l1_bytes: int = 32 * GIB
    allow_host_path: bool = False

    @property
    def engine_versions(self) -> dict[str, str]:
        """Return the versions that decide about layouts, by name."""
        return {"vllm": self.vllm_version, "lmcache": self.lmcache_version}

    def with_max_l1_bytes(self, size_bytes: int) -> Defaults:
        """Return the same defaults with another cap of L1."""
        return replace(self, max_l1_bytes=size_bytes)
