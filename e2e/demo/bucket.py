"""What lies in the bucket, seen from outside: the emulator lists, the generated user reads."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from couchbase_lm_operator import names
from couchbase_lm_operator.core.pod_template import pod_paths
from e2e.demo import manifests
from e2e.demo.journey import Workload
from e2e.demo.kube import DemoError, Kube
from e2e.demo.probe_documents import SHARD_MARK
from e2e.demo.strangers import strange_places

_LAYOUT = re.compile(r"[0-9a-f]{16}")
_PROBE = Path(__file__).with_name("probe_documents.py")


@dataclass(frozen=True)
class Bucket:
    """The collection of one resource, at the place that its status names."""

    kube: Kube
    place: manifests.Place
    password: str
    status: dict[str, Any]

    def keys(self) -> set[str]:
        """Return the keys of all documents of the collection."""
        place = {
            "bucket": self.status["bucket"]["name"],
            "scope": self.status["scope"],
            "collection": self.status["collection"],
        }
        with self._management() as http:
            answer = http.get("/_emulator/documents", params=place).raise_for_status()
        return {document["key"] for document in answer.json()["documents"]}

    @contextlib.contextmanager
    def _management(self) -> Iterator[httpx.Client]:
        """Give a client of the management interface, logged in as administrator."""
        target, login = f"svc/{manifests.COUCHBASE}", (manifests.ADMIN_USER, self.password)
        with (
            self.kube.forward(self.place.couchbase, target, manifests.MANAGEMENT_PORT) as url,
            httpx.Client(base_url=url, auth=login, timeout=30) as http,
        ):
            yield http

    def probe(self, workload: Workload, keys: set[str]) -> dict[str, Any]:
        """Read ``keys`` inside a pod with the generated user and try what it must not reach."""
        task = {
            "connectionString": f"couchbase://{self.place.couchbase_host}",
            "management": f"http://{self.place.couchbase_host}:{manifests.MANAGEMENT_PORT}",
            "credentials": pod_paths.CREDENTIALS,
            "bucket": self.status["bucket"]["name"],
            "scope": self.status["scope"],
            "collection": self.status["collection"],
            "keys": sorted(keys),
        }
        pod = workload.pods()[0]
        with (
            self._management() as http,
            strange_places(http, self.status["bucket"]["name"], self.status["scope"]) as strange,
        ):
            said = self.kube.exec(
                workload.namespace,
                pod,
                names.CONTAINER_LMCACHE,
                *("python3", "-", json.dumps({**task, "strange": strange})),
                stdin=_PROBE.read_text(),
            )
        return dict(json.loads(said.splitlines()[-1]))


def check_documents(
    resource: dict[str, Any], new_keys: set[str], chunks: int, probed: dict[str, Any]
) -> dict[str, Any]:
    """Hold what one prompt stored against the storage format and against what status predicts.

    Every chunk is one object of each object group of each rank, to the byte.

    Raises:
        DemoError: a key, a count, a size, a checksum or a right is not as it has to be.
    """
    model, couchbase = resource["status"]["model"], resource["status"]["couchbase"]
    head = re.escape(f"{couchbase['keyPrefix']}{resource['spec']['model']['id']}")
    pattern = re.compile(rf"^{head}@0x[0-9a-f]{{8}}@(?P<group>[0-9a-f]+)@[0-9a-f]{{64}}({SHARD_MARK}\d+)?$")
    objects = probed["objects"]
    faults = [f"key {key} does not have the documented form" for key in new_keys if not pattern.match(key)]
    faults += [f"shard {key} has no manifest" for key in probed["orphans"]]
    if len(new_keys) != (wanted := chunks * model["documentsPerChunk"]):
        faults.append(f"{chunks} chunks made {len(new_keys)} documents, status predicts {wanted}")
    faults += _group_faults(_sizes_by_group(objects, pattern), chunks, model)
    for item in objects:
        faults += [f"object {item['key']}: {name} is false" for name, holds in item.items() if holds is False]
    faults += _layout_faults(objects, pattern)
    attempts: dict[str, dict[str, Any]] = probed["attempts"]
    faults += [
        f"nothing refused the generated user to {what}: {attempt['said']}"
        for what, attempt in attempts.items()
        if not attempt["isRefused"]
    ]
    if faults:
        raise DemoError("the bucket is not as it has to be:\n" + "\n".join(faults[:10]))
    return {
        "documents": len(new_keys),
        "objects": len(objects),
        "objectBytes": model["objectBytes"],
        "manifestFields": objects[0]["fields"],
        "userIsRefused": {what: attempt["said"] for what, attempt in attempts.items()},
    }


def _sizes_by_group(objects: list[dict[str, Any]], pattern: re.Pattern[str]) -> dict[int, list[int]]:
    """Return the sizes of the objects of each object group, which its key names."""
    found: dict[int, list[int]] = {}
    for item in objects:
        if (match := pattern.match(item["key"])) is not None:
            found.setdefault(int(match["group"], 16), []).append(item["bytes"])
    return found


def _group_faults(found: dict[int, list[int]], chunks: int, model: dict[str, Any]) -> list[str]:
    """Compare the sizes that were found in each object group with those of status: how many, and how large."""
    predicted = dict(enumerate(model["objectBytes"]))
    faults = [
        f"there is an object group {group}, status predicts {len(predicted)}"
        for group in found.keys() - predicted.keys()
    ]
    for group, size in predicted.items():
        sizes = found.get(group, [])
        if len(sizes) != (wanted := chunks * model["ranks"]):
            faults.append(f"object group {group} has {len(sizes)} objects, status predicts {wanted}")
        if wrong := sorted(set(sizes) - {size}):
            faults.append(f"object group {group} has objects of {wrong} bytes, status predicts {size}")
    return faults


def _layout_faults(objects: list[dict[str, Any]], pattern: re.Pattern[str]) -> list[str]:
    """Every manifest names the layout of its bytes, and all objects of an object group have the same one."""
    faults, found = [], dict[int, set[str]]()
    for item in objects:
        layout, match = item["layout"], pattern.match(item["key"])
        if not isinstance(layout, str) or not _LAYOUT.fullmatch(layout):
            faults.append(f"object {item['key']}: the manifest's layout is {layout!r}, not 16 hexadecimal digits")
        elif match is not None:
            found.setdefault(int(match["group"], 16), set()).add(layout)
    return faults + [
        f"object group {group} has objects of several layouts: {', '.join(sorted(layouts))}"
        for group, layouts in found.items()
        if len(layouts) > 1
    ]
