"""Does a live object hold every value that we render? Pure.

The API server stores more than we send (defaults, other managers' fields) and may store the same value in
another spelling, so equality of the objects is the wrong question: a field that we render must be there
with an equal value. Quantities are compared by amount: the server keeps ``cpu: "0.5"`` as ``500m`` and
``2048Mi`` as ``2Gi``. What is empty in our object counts as present when the server dropped it
(``resources: {}``, ``emptyDir: {}``). Elements that others added to a keyed list are theirs: server-side
apply leaves them alone, so calling them drift would only repeat a write without effect.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
# fields whose values the API server treats as resource quantities
_QUANTITY_MAPS = frozenset({"limits", "requests"})
_QUANTITY_FIELDS = frozenset({"sizeLimit", "storage", "divisor"})
# the keys by which the API server merges lists of objects, most telling first
_MERGE_KEYS = ("name", "mountPath", "containerPort", "port", "ip", "key", "topologyKey", "uid")
_SERVER_OWNED_METADATA = frozenset({"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"})


def first_difference(rendered: Any, live: Any, path: str = "") -> str | None:
    """Return the path of the first rendered field that the live object does not hold, or None."""
    if isinstance(rendered, dict):
        return _first_in_mapping(rendered, live, path)
    if isinstance(rendered, list):
        return _first_in_list(rendered, live, path)
    return None if _is_same_value(rendered, live, path) else path or "."


def _first_in_mapping(rendered: dict[str, Any], live: Any, path: str) -> str | None:
    if not isinstance(live, dict):
        return None if live is None and _is_empty(rendered) else path
    for key, value in rendered.items():
        if path == ".metadata" and key in _SERVER_OWNED_METADATA:
            continue
        found = first_difference(value, live.get(key), f"{path}.{key}")
        if found is not None:
            return found
    return None


def _first_in_list(rendered: list[Any], live: Any, path: str) -> str | None:
    if not isinstance(live, list):
        return None if live is None and not rendered else path
    if not rendered and all(isinstance(each, dict) for each in live):
        return None
    merge_key = _merge_key(rendered)
    if merge_key is None:
        if len(rendered) != len(live):
            return path
        pairs = list(enumerate(zip(rendered, live, strict=True)))
        return next((each for i, (a, b) in pairs if (each := first_difference(a, b, f"{path}[{i}]"))), None)
    for item in rendered:
        twin = next((each for each in live if isinstance(each, dict) and each.get(merge_key) == item[merge_key]), None)
        found = first_difference(item, twin, f"{path}[{item[merge_key]}]")
        if found is not None:
            return found
    return None


def _merge_key(items: list[Any]) -> str | None:
    for key in _MERGE_KEYS:
        values = [item.get(key) for item in items if isinstance(item, dict)]
        if values and len(values) == len(items) and None not in values and len(set(map(str, values))) == len(values):
            return key
    return None


def _is_same_value(rendered: Any, live: Any, path: str) -> bool:
    if live is None:
        return _is_empty(rendered)
    if rendered == live and isinstance(rendered, bool) == isinstance(live, bool):
        return True
    if not _is_quantity_path(path):
        return False
    left, right = amount(rendered), amount(live)
    return left is not None and left == right


def _is_quantity_path(path: str) -> bool:
    parts = path.rsplit(".", 2)
    return parts[-1] in _QUANTITY_FIELDS or (len(parts) > 1 and any(part in _QUANTITY_MAPS for part in path.split(".")))


def _is_empty(value: Any) -> bool:
    """Say whether a rendered value may be dropped by the server: nothing in it says anything."""
    if isinstance(value, dict):
        return all(_is_empty(each) for each in value.values())
    return value is None or value in ([], "")


def amount(quantity: Any) -> Decimal | None:
    """Return the number a Kubernetes quantity stands for, or None when it is none."""
    text = str(quantity).strip()
    digits = text.rstrip("EGKMPTikmnu") if not _has_exponent(text) else text
    factor = _SUFFIXES.get(text[len(digits) :])
    if factor is None:
        return None
    try:
        return Decimal(digits) * factor
    except InvalidOperation:
        return None


def _has_exponent(text: str) -> bool:
    head, marker, tail = text.upper().partition("E")
    return bool(marker and head and tail.lstrip("+-").isdigit())
