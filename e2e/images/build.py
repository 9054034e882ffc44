"""Build what is out of date, one image after the other, and leave the rest alone."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from e2e.bootstrap import cache_root
from e2e.images.builders import Builder, choose_builder
from e2e.images.catalog import Image, image
from e2e.images.inputs import inputs_digest
from e2e.images.progress import IMAGES
from e2e.images.store import Built, built, cached, cached_archive, publish

DEFAULT_ENGINE_BASE = "lmcache/vllm-openai:v0.5.6"


def build(names: list[str], chosen: Mapping[str, str]) -> list[Built]:
    """Build the images called ``names`` unless their inputs are unchanged; ``chosen`` overrides build arguments.

    Raises ``KeyError`` for an unknown name, ``FileNotFoundError`` for a missing source and ``ClusterError`` for a
    failed build.
    """
    images = [image(name) for name in names]
    with _one_build_at_a_time():
        builder = choose_builder()
        arguments = {"BASE": builder.default_base(), "ENGINE_BASE": DEFAULT_ENGINE_BASE, **chosen}
        return [_build_one(each, builder, arguments) for each in images]


def _build_one(wanted: Image, builder: Builder, arguments: Mapping[str, str]) -> Built:
    inputs = inputs_digest(wanted, arguments)
    current = built(wanted.name)
    if current and current.inputs == inputs:
        IMAGES.say(f"image {wanted.name}: unchanged")
        return current
    entry = cached(wanted.name, inputs)
    if entry is None:
        target = cached_archive(wanted.name, inputs)
        target.parent.mkdir(parents=True, exist_ok=True)
        builder.prepare(arguments["BASE"])
        partial = target.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        started = time.monotonic()
        with IMAGES.step(f"image {wanted.name}: building with {builder.name}"):
            builder.build(wanted, arguments, partial)
        partial.replace(target)
        entry = Built(
            name=wanted.name,
            reference=wanted.reference,
            inputs=inputs,
            base=arguments[wanted.build_arguments[-1]],
            builder=builder.name,
            size_bytes=target.stat().st_size,
            seconds=round(time.monotonic() - started, 1),
        )
    publish(entry)
    IMAGES.say(f"image {wanted.name}: {entry.size_bytes / 1e6:.0f} MB, {entry.reference}")
    return entry


@contextmanager
def _one_build_at_a_time() -> Iterator[None]:
    # Two builds would compete for cores and disk, and could write the same archive.
    lock_file = cache_root() / "images" / ".lock"
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            IMAGES.say("another build is running; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
