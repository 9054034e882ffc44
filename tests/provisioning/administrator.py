"""What an administrator of Couchbase sees and does beside the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from tests.provisioning.arm import BUCKET

if TYPE_CHECKING:
    from e2e.couchbase_emulator import Emulator


async def admin_call(emulator: Emulator, method: str, path: str, **form: str) -> httpx.Response:
    """One successful request to the management API."""
    auth = (emulator.admin_username, emulator.admin_password)
    async with httpx.AsyncClient(base_url=emulator.management_urls[0], auth=auth) as client:
        response = await client.request(method, path, data=form or None)
        assert response.status_code < 300, response.text
        return response


async def bucket_of(emulator: Emulator, name: str = BUCKET) -> dict[str, Any]:
    """A bucket as the management API shows it."""
    found: dict[str, Any] = (await admin_call(emulator, "GET", f"/pools/default/buckets/{name}")).json()
    return found
