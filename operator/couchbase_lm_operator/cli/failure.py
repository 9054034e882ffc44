"""How a command ends when it cannot do what it was asked."""

from __future__ import annotations

import click


class WorldError(click.ClickException):
    """Something outside failed: the API server, the operator's own tasks."""

    exit_code = 1


class BadInputError(click.ClickException):
    """A file, an option or a setting that cannot be read."""

    exit_code = 2


class RefusedInputError(click.ClickException):
    """Input that is well-formed, but that the operator would refuse, or wait for in vain."""

    exit_code = 3
