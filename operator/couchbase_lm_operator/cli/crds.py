"""``lmcb crds``: print the CRD, or bring it into a cluster."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from couchbase_lm_operator.api.crd import crd, crd_yaml
from couchbase_lm_operator.cli.failure import WorldError
from couchbase_lm_operator.errors import OperatorError
from couchbase_lm_operator.io.crd_apply import apply_crd


@click.group("crds", invoke_without_command=True)
@click.pass_context
def crds_command(context: click.Context) -> None:
    """Print the CustomResourceDefinition."""
    if context.invoked_subcommand is None:
        click.echo(crd_yaml(), nl=False)


@crds_command.command("apply")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    envvar=["LMCB_KUBECONFIG", "KUBECONFIG"],
    help="Kubeconfig file; in a pod its service account, else ~/.kube/config.",
)
def apply_command(kubeconfig: Path | None) -> None:
    """Apply the CustomResourceDefinition and wait until the API server serves it."""
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" not in os.environ:
        kubeconfig = Path.home() / ".kube" / "config"
    try:
        name = asyncio.run(apply_crd(crd(), kubeconfig))
    except OperatorError as error:
        raise WorldError(f"the CRD was not applied: {error}") from error
    click.echo(f"{name} applied")
