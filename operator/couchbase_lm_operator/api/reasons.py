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
    REMOVAL_ABANDONED = "RemovalAbandoned", "Bucket or user could not be removed from Couchbase and were left there."
    INVALID_SPEC = "InvalidSpec", "The specification cannot be used; the message names the field."
    OPERATOR_ERROR = "OperatorError", "The operator failed in an unexpected way; it tries again."
    CLUSTER_REFUSED = "ClusterRefused", "The Kubernetes API server refused a request of the operator."

    # What the resource refers to
    SECRET_MISSING = "SecretMissing", "A Secret, or a key in it, that the specification names does not exist."
    CONFIG_MAP_MISSING = "ConfigMapMissing", "A ConfigMap, or a key in it, does not exist."
    REFERENCE_UNREADABLE = "ReferenceUnreadable", "An object that the specification names could not be read."
    CLAIMED_BY_OTHER = "ClaimedByOther", "An older resource already claims the bucket or the user."

    # The workload
    WORKLOAD_AVAILABLE = "WorkloadAvailable", "All wanted replicas answer."
    WORKLOAD_STARTING = "WorkloadStarting", "Pods are being created or load the model."
    WORKLOAD_UNSCHEDULABLE = "WorkloadUnschedulable", "A pod waits for a node with enough free resources."
    WORKLOAD_FAILING = "WorkloadFailing", "A container fails again and again, or its image cannot be pulled."
    WORKLOAD_DEADLINE_EXCEEDED = (
        "WorkloadDeadlineExceeded",
        "Pods were not ready within twice the start time-out.",
    )
    WORKLOAD_BLOCKED = "WorkloadBlocked", "The API server refuses to create pods (admission, quota)."
    WORKLOAD_SCALED_TO_ZERO = "WorkloadScaledToZero", "No replicas are wanted."
    WORKLOAD_NOT_RENDERED = "WorkloadNotRendered", "There is no workload yet, as the specification cannot be planned."
    POD_TEMPLATE_INVALID = "PodTemplateInvalid", "The API server refuses the pod template; the message names the field."
    SERVICE_INVALID = "ServiceInvalid", "The API server refuses the Service; the message names the field."
    CHILD_NOT_OURS = "ChildNotOurs", "An object of a name the operator needs belongs to somebody else."
    ROLLOUT_PENDING = "RolloutPending", "A new pod template waits for spec.rollout.approve."

    # What pods really store
    SIZING_VERIFIED = "SizingVerified", "Pods store objects of the predicted sizes."
    SIZING_DIFFERS = "SizingDiffers", "Pods store objects of other sizes than predicted; the message has both numbers."
    NOTHING_STORED = "NothingStored", "No pod of this template is known to have stored a chunk yet."
    METRICS_UNREACHABLE = "MetricsUnreachable", "No ready pod answers the operator on its metrics port."

    # The cache
    CACHE_HEALTHY = "CacheHealthy", "The engines' user can log in and sees its collection on every data node."
    CACHE_UNREACHABLE = "CacheUnreachable", "The engines' user cannot reach its collection; serving goes on without it."
    CACHE_NOT_PROBED = "CacheNotProbed", "Nobody looks at the cache that pods use: the message says what is missing."

    # Couchbase: reaching the cluster
    COUCHBASE_REACHABLE = "CouchbaseReachable", "The management API answers and accepts the admin credentials."
    COUCHBASE_UNREACHABLE = "CouchbaseUnreachable", "No management endpoint answers."
    COUCHBASE_BUSY = "CouchbaseBusy", "Couchbase asks to come back later (rebalance, failover, another change)."
    NOT_COUCHBASE = "NotCouchbase", "What answers at the endpoint is not a Couchbase management API."
    COUCHBASE_NOT_INITIALISED = "CouchbaseNotInitialised", "The node answers but belongs to no initialised cluster."
    ENDPOINT_REDIRECTS = "EndpointRedirects", "The endpoint answers with a redirect, which is never followed."
    ENDPOINT_FORBIDDEN = "EndpointForbidden", "The endpoint is link-local or the Kubernetes API server."
    ADMIN_CREDENTIALS_REFUSED = "AdminCredentialsRefused", "Couchbase refuses the admin user name or password."
    ADMIN_NOT_PERMITTED = "AdminNotPermitted", "The admin user lacks a role that provisioning needs."
    COUCHBASE_TLS_FAILED = "CouchbaseTLSFailed", "The certificate of the endpoint cannot be verified."
    COUCHBASE_ANSWER_UNEXPECTED = "CouchbaseAnswerUnexpected", "Couchbase gave an answer the operator does not know."
    COMMUNITY_EDITION = "CommunityEdition", "Community Edition has no roles on collections."
    NO_DATA_NODES = "NoDataNodes", "No node of the cluster runs the data service."

    # Couchbase: the bucket, its scope and collection
    BUCKET_READY = "BucketReady", "Bucket, scope and collection exist and every data node serves them."
    BUCKET_CREATING = "BucketCreating", "The bucket was asked for and is not listed yet."
    BUCKET_SIZE_UNKNOWN = (
        "BucketSizeUnknown",
        "The bucket is gone, and its size is not known while the specification cannot be followed.",
    )
    BUCKET_WARMING_UP = "BucketWarmingUp", "The bucket exists; not every data node serves it yet."
    BUCKET_BEING_DELETED = "BucketBeingDeleted", "A bucket of that name is still being shut down."
    BUCKET_NOT_OURS = "BucketNotOurs", "A bucket of that name exists that this resource did not create."
    BUCKET_NAME_REFUSED = "BucketNameRefused", "Couchbase does not allow this bucket name."
    BUCKET_SETTINGS_REFUSED = "BucketSettingsRefused", "Couchbase refuses a setting of the bucket."
    TOO_MANY_BUCKETS = "TooManyBuckets", "The cluster has as many buckets as it allows."
    SHARED_BUCKET_MISSING = "SharedBucketMissing", "The bucket to be shared does not exist."
    QUOTA_EXCEEDS_FREE = "QuotaExceedsFree", "The bucket's memory quota is larger than what the data service has free."
    QUOTA_TOO_SMALL = "QuotaTooSmall", "The bucket's memory quota is below Couchbase's minimum."
    TOO_MANY_REPLICAS = "TooManyReplicas", "Each replica needs a data node of its own."
    AUTO_FAILOVER_BLOCKED = (
        "AutoFailoverBlocked",
        "An ephemeral bucket without replicas would block automatic failover of the whole cluster.",
    )
    REMOVED_BY_THIRD_PARTY = "RemovedByThirdParty", "Somebody else removed the same object twice."
    KEYSPACE_CREATING = "KeyspaceCreating", "Scope and collection are being created."
    KEYSPACE_REFUSED = "KeyspaceRefused", "Couchbase refuses the scope or the collection."
    BELOW_WORKING_SET = "BelowWorkingSet", "The bucket holds fewer contexts than spec.cache.workingSet wishes."

    # Couchbase: the user of the engines
    CREDENTIALS_READY = "CredentialsReady", "The user of the Secret reaches its collection on every data node."
    CREDENTIALS_PENDING = "CredentialsPending", "The user was written; not every data node knows it yet."
    USER_NOT_OURS = "UserNotOurs", "A Couchbase user of that name exists that this resource did not create."
    USER_NAME_REFUSED = "UserNameRefused", "Couchbase does not allow this user name."
    PASSWORD_POLICY_REFUSED = "PasswordPolicyRefused", "The generated password does not meet the cluster's policy."
    USER_ROLES_REFUSED = "UserRolesRefused", "Couchbase does not accept the roles of the user."
    USER_REFUSED = "UserRefused", "The data service refuses the user name or password."
    BUCKET_ACCESS_REFUSED = "BucketAccessRefused", "The user may not open the bucket, or the bucket is missing."
    COLLECTION_ACCESS_REFUSED = "CollectionAccessRefused", "Scope or collection is missing, or the user has no right."
    DATA_SERVICE_UNREACHABLE = "DataServiceUnreachable", "A data node does not answer on its data port."

    # The model
    MODEL_RESOLVED = "ModelResolved", "config.json was read and sized."
    MODEL_CONFIG_MISSING = "ModelConfigMissing", "The model's config.json does not exist where it is looked for."
    MODEL_CONFIG_UNREADABLE = "ModelConfigUnreadable", "The model's config.json could not be read."
    MODEL_CONFIG_INVALID = "ModelConfigInvalid", "config.json is not one, or a field of it is missing or absurd."
    MODEL_NOT_SUPPORTED = "ModelNotSupported", "The model's type is not one that the operator can size."

    TRANSFER_NOT_SUPPORTED = (
        "TransferNotSupported",
        "The transfer cannot carry the groups in which layers are cached, or the device does not offer it.",
    )
    DEVICE_BACKEND_NOT_SUPPORTED = (
        "DeviceBackendNotSupported",
        "The operator has no device backend of that name for the vendor.",
    )

    # What the specification may not ask for
    CHUNK_SIZE_INVALID = "ChunkSizeInvalid", "The chunk size does not fit the engine's KV block or the model's window."
    FLAG_NOT_ALLOWED = "FlagNotAllowed", "An argument in extraArgs is set by the operator or would break the cache."
    LORA_NOT_SUPPORTED = "LoRANotSupported", "LoRA adapters are in no cache key, so they cannot share a cache."
    ENV_NOT_ALLOWED = "EnvNotAllowed", "An environment variable is set by the operator or would break the cache."
    ADAPTER_PARAM_NOT_ALLOWED = "AdapterParamNotAllowed", "A parameter of the adapter is set by the operator."
    ADAPTER_PARAM_UNKNOWN = "AdapterParamUnknown", "The adapter has no such parameter."
    HOST_PATH_NOT_ALLOWED = "HostPathNotAllowed", "hostPath volumes are not allowed by this operator's settings."
    VOLUME_NOT_ALLOWED = "VolumeNotAllowed", "A volume is of a type, name or mount path that pods may not add."
    LABEL_NOT_ALLOWED = "LabelNotAllowed", "A label or annotation of the pods belongs to the operator."

    # Warnings: what works but is probably not meant
    KEY_PREFIX_OVERRIDDEN = "KeyPrefixOverridden", "spec.cache.keyPrefix replaces the fingerprint of the cached bytes."
    TLS_NOT_VERIFIED = "TLSNotVerified", "The certificate of Couchbase is not verified."
    WEIGHTS_NOT_PINNED = "WeightsNotPinned", "The weights can change behind spec.model.revision, or a path."
    IMAGE_NOT_PINNED = "ImageNotPinned", "spec.engine.image has no digest, so that its name can come to mean another."
    MOUNT_NOT_PINNED = "MountNotPinned", "What a volume mounts into the pods can be edited without any key changing."
    ENV_NOT_IN_FINGERPRINT = "EnvNotInFingerprint", "Variables of the engine come from objects that no key covers."
    L1_TOO_SMALL = "L1TooSmall", "The longest contexts do not fit into L1 and are recomputed."
    NOT_WORTHWHILE = "NotWorthwhile", "Loading a typical context is predicted to take longer than computing it again."
    SIZING_REMARK = "SizingRemark", "Something about the sizes that a person should know."
    NEVER_CACHED = "NeverCached", "A typical context is shorter than a chunk and is never cached."
