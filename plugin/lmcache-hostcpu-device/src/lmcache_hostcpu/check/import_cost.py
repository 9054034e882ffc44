"""What comes into a process with the backend's entry point, before anything asks for the backend?

Runs in a process of its own in which nothing has imported LMCache yet.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from lmcache_hostcpu.check.discovery import TITLE, declared
from lmcache_hostcpu.check.report import Failed, tell

# The kit's own modules are here because the kit runs, not because a backend wanted them.
_KIT = "lmcache_hostcpu.check"


def main(backend: str) -> None:
    """Check what LMCache's registry loads of ``backend``; the row goes to standard output."""
    os.environ.pop("LMCACHE_DEVICE_BACKEND", None)
    os.environ.pop("DEVICE_TYPE", None)
    for entry in [entry for entry in declared() if entry.name == backend][:1]:
        tell(TITLE, "light to import", lambda entry=entry: _light(entry))  # type: ignore[misc]


def _light(entry: importlib.metadata.EntryPoint) -> str:
    """Build LMCache's registry without the rest of LMCache, and see what of the backend has come with it."""
    package = entry.module.partition(".")[0]
    before = set(sys.modules)
    # LMCache's own top level would go on and load the operations of the backend that it chooses.
    found = importlib.util.find_spec("lmcache")
    if found is None or found.submodule_search_locations is None:
        raise Failed("LMCache is not installed in this environment")
    bare = ModuleType("lmcache")
    bare.__spec__ = importlib.machinery.ModuleSpec("lmcache", None, is_package=True)
    bare.__path__ = list(found.submodule_search_locations)
    sys.modules["lmcache"] = bare
    importlib.import_module("lmcache.v1.platform._device_detect")._build_backend_registry()
    loaded = {name for name in set(sys.modules) - before if name.partition(".")[0] == package}
    needed = {entry.module[:end] for end in _ends(entry.module)}
    extra = sorted(name for name in loaded - needed if not name.startswith(_KIT))
    libraries = _mapped(entry)
    if extra or libraries:
        raise Failed(
            f"the entry point's module also loads {', '.join(extra + libraries)} while LMCache builds its registry, in "
            f"every process and whichever backend is chosen; import them inside the properties that need them"
        )
    return f"the registry loads {entry.module} and nothing else of {package}"


def _ends(name: str) -> list[int]:
    return [index for index, letter in enumerate(name) if letter == "."] + [len(name)]


def _mapped(entry: importlib.metadata.EntryPoint) -> list[str]:
    files = (entry.dist.files or []) if entry.dist else []
    own = {str(Path(str(file.locate())).resolve()) for file in files if ".so" in file.name}
    with Path("/proc/self/maps").open() as maps:
        mapped = {line.split(maxsplit=5)[-1].strip() for line in maps}
    return sorted(Path(path).name for path in own & mapped)


if __name__ == "__main__":
    main(sys.argv[1])
