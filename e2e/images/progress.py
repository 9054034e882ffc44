"""The progress lines of image builds."""

from __future__ import annotations

from typing import Final

from e2e.cluster.progress import Progress

IMAGES: Final = Progress("images")
