"""``lmcb``, and ``python -m couchbase_lm_operator``: all commands put together."""

from __future__ import annotations

import click

from couchbase_lm_operator.cli.failure import BadInputError, WorldError
from couchbase_lm_operator.cli.lazy_group import LazyGroup


@click.group(
    cls=LazyGroup,
    places={
        "plan": "couchbase_lm_operator.cli.plan:plan_command",
        "size": "couchbase_lm_operator.cli.size:size_command",
        "crds": "couchbase_lm_operator.cli.crds:crds_command",
    },
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="lmcache-couchbase-operator", prog_name="lmcb")
def main() -> None:
    """Serve models with vLLM and share their KV cache through Couchbase."""


@main.command("run")
def run_command() -> None:
    """Run the operator. Settings come from the environment (LMCB_...)."""
    # the event source and its libraries are for this command only
    from couchbase_lm_operator import settings  # noqa: PLC0415 - kopf takes a second; only `run` needs it
    from couchbase_lm_operator.errors import OperatorError, SettingsError  # noqa: PLC0415 - likewise
    from couchbase_lm_operator.handlers import run_operator  # noqa: PLC0415 - likewise

    try:
        run_operator(settings.load())
    except SettingsError as error:
        raise BadInputError(str(error)) from error
    except OperatorError as error:
        raise WorldError(f"the operator stopped: {error}") from error


if __name__ == "__main__":
    main()
