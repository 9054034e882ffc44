"""A resource planned without any cluster: what a pass would have gathered is absent, not invented."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.cli.failure import RefusedInputError
from couchbase_lm_operator.core.checks import check
from couchbase_lm_operator.core.observed import Observed
from couchbase_lm_operator.core.plan import Plan, make_plan
from couchbase_lm_operator.core.verdict import Proceed

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.defaults import Defaults
    from couchbase_lm_operator.core.observed import MalformedModelConfig, Manifest, Missing, ModelConfig

UNKNOWN_NAMESPACE_UID = "unknown"


def offline_plan(
    spec: LMCacheCouchbaseSpec,
    resource: Manifest,
    config: ModelConfig | MalformedModelConfig | Missing,
    release: Defaults,
) -> Plan:
    """Return the plan of a resource.

    Raises:
        RefusedInputError: the operator would refuse it, or wait for something.
    """
    observed = Observed(
        resource=resource,
        namespace_uid=UNKNOWN_NAMESPACE_UID,
        model_config=config,
        admin_credentials=None,
        user_credentials=None,
        referenced=(),
        ca_pem=None,
        couchbase=None,
        children={},
        pods=(),
        claims=(),
        is_partial=True,
    )
    verdict = check(spec, observed, release)
    if not isinstance(verdict, Proceed):
        raise RefusedInputError(f"{verdict.reason}: {verdict.message}")
    return make_plan(spec, observed, release)
