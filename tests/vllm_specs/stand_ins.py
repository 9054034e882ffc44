"""Modules that model files import for images and kernels, and that a machine for layouts need not have.

A stand-in can be imported, subclassed, subscripted and used as a decorator; it computes nothing.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMES = ("cutlass", "cuda", "flash_attn_3", "flashinfer", "quack", "timm", "torchvision", "torchaudio")


class _Kind(type):
    def __getattr__(cls, name: str) -> Any:
        return stand_in(name)

    def __call__(cls, *arguments: Any, **more: Any) -> Any:
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) and not more else cls

    def __getitem__(cls, _item: Any) -> Any:
        return cls


def stand_in(name: str) -> Any:
    """Return something that can be taken for a class, a function or a decorator.

    Raises:
        AttributeError: ``name`` is one of Python's own.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    return _Kind(name, (), {})


class _Module(ModuleType):
    __path__: Sequence[str] = ()
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        return stand_in(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, *_more: Any) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in _NAMES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def install() -> None:
    """Let what is not installed be imported from now on (what is installed goes first)."""
    sys.meta_path.append(_Finder())
