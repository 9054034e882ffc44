"""Where clients reach the engines: read from the Service that is there, not from the one that is wanted. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from couchbase_lm_operator.core.observed import Manifest


def service_url(service: Manifest | None) -> str:
    """Return the base URL of the API behind a live Service; "" without one."""
    if service is None:
        return ""
    metadata, ports = service["metadata"], service["spec"].get("ports") or []
    return f"http://{metadata['name']}.{metadata['namespace']}.svc:{ports[0]['port']}/v1" if ports else ""
