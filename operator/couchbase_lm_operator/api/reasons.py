"""Every machine-readable reason of conditions and Events, with its meaning. Pure.

Reasons are API: scripts compare them. The text here is the reference page; the sentence a user reads in a
condition is written where the reason is given, and names the field and what to do.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """A CamelCase reason; ``meaning`` says what it tells, in general terms."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """Keep the meaning beside the value."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    # The whole resource
    SERVING = "Serving", "This generation is provisioned and its engines answer."
    PROGRESSING = "Progressing", "The operator is working towards this generation."
    SUSPENDED = "Suspended", "spec.suspend is true: the operator observes and changes nothing."
    DELETING = "Deleting", "The resource is being deleted; what the operator created is being removed."
    INVALID_SPEC = "InvalidSpec", "The specification cannot be used; the message names the field."
    OPERATOR_ERROR = "OperatorError", "The operator failed in an unexpected way; it tries again."
    CLUSTER_BUSY = "ClusterBusy", "The Kubernetes API server did not answer or asked to come back later."
    CLUSTER_REFUSED = "ClusterRefused", "The Kubernetes API server refused a request of the operator."

    # What the resource refers to
    SECRET_MISSING = "SecretMissing", "A Secret, or a key in it, that the specification names does not exist."  # noqa: S105
    CONFIG_MAP_MISSING = "ConfigMapMissing", "A ConfigMap, or a key in it, does not exist."
    REFERENCE_UNREADABLE = "ReferenceUnreadable", "An object that the specification names could not be read."
    CLAIMED_BY_OTHER = "ClaimedByOther", "An older resource already claims the bucket or the user."

    # The workload
    WORKLOAD_AVAILABLE = "WorkloadAvailable", "All wanted replicas answer."
    WORKLOAD_STARTING = "WorkloadStarting", "Pods are being created or load the model."
    WORKLOAD_UNSCHEDULABLE = "WorkloadUnschedulable", "A pod waits for a node with enough free resources."
    WORKLOAD_FAILING = "WorkloadFailing", "A container fails again and again, or its image cannot be pulled."
    WORKLOAD_DEADLINE_EXCEEDED = "WorkloadDeadlineExceeded", "Pods did not become ready within twice the start time-out."
    WORKLOAD_BLOCKED = "WorkloadBlocked", "The API server refuses to create pods (admission, quota)."
    WORKLOAD_SCALED_TO_ZERO = "WorkloadScaledToZero", "No replicas are wanted."
    WORKLOAD_NOT_RENDERED = "WorkloadNotRendered", "There is no workload yet, as the specification cannot be planned."
    POD_TEMPLATE_INVALID = "PodTemplateInvalid", "The API server refuses the pod template; the message names the field."
    CHILD_NOT_OURS = "ChildNotOurs", "An object of a name the operator needs belongs to somebody else."
    ROLLOUT_PENDING = "RolloutPending", "A new pod template waits for spec.rollout.approve."

    # The cache
    CACHE_HEALTHY = "CacheHealthy", "The engines' user can log in and sees its collection on every data node."
    CACHE_UNREACHABLE = "CacheUnreachable", "The engines' user cannot reach its collection; serving goes on without it."
