"""A group of commands that imports a command's module only when that command is used.

``lmcb size`` answers in a moment, as the libraries of the API server and of the resource's schema, which take a
second to import, belong to other commands.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping


class LazyGroup(click.Group):
    """Knows its commands as ``module:attribute``; each is a ``click.Command``."""

    def __init__(self, *args: Any, places: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = dict(places)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names: the commands that are there already, then the others."""
        return [*self.commands, *self._places]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported now, or None for a name that is none."""
        if cmd_name not in self._places:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._places[cmd_name].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - the places are constants of this program
        return command
