"""``spec.couchbase``: the cluster, and the bucket, collection and user that hold the cache. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from couchbase_lm_operator.api.schema import LIST_SET, Bytes, Duration, KeyReference, LocalReference, Model, rule, rules

Keyspace = Annotated[str, Field(min_length=1, max_length=251, pattern=r"^(_default|[A-Za-z0-9-][A-Za-z0-9_%-]*)$")]
Endpoint = Annotated[str, Field(max_length=512, pattern=r"^https?://[^\s/?#@]+/?$")]


class TlsSpec(Model):
    """Trust for couchbases:// connections, which verify the server's certificate by default."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!(has(self.caSecretRef) && has(self.caConfigMapRef))",
                "set at most one of caSecretRef and caConfigMapRef",
            )
        )
    )
    ca_secret_ref: KeyReference | None = Field(default=None, description="Secret key with the CA certificates (PEM).")
    ca_config_map_ref: KeyReference | None = Field(
        default=None, description="ConfigMap key with the CA certificates (PEM)."
    )
    insecure_skip_verify: bool = Field(
        default=False, description="Do not verify the server's certificate. For tests only."
    )


class BucketSpec(Model):
    """The bucket that holds the cache. name and type cannot be changed later."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)",
                "bucket.name cannot be changed; create a new resource",
            ),
            rule("self.type == oldSelf.type", "bucket.type cannot be changed; create a new resource"),
            rule("self.management != 'Shared' || has(self.name)", "bucket.name is required with management Shared"),
            rule(
                "self.management != 'Shared' || self.reclaimPolicy != 'Delete'",
                "reclaimPolicy Delete needs management Owned: a shared bucket is never deleted",
            ),
            rule(
                "!has(self.evictionPolicy) || (self.type == 'Ephemeral') == "
                "(self.evictionPolicy in ['nruEviction', 'noEviction'])",
                "evictionPolicy is nruEviction or noEviction for Ephemeral, valueOnly or fullEviction for Couchbase",
            ),
        )
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        pattern=r"^[A-Za-z0-9_%-][A-Za-z0-9_.%-]*$",
        description="Name of the bucket; derived from this resource when absent.",
    )
    management: Literal["Owned", "Shared"] = Field(
        default="Owned",
        description="Owned: the operator creates the bucket. Shared: it exists already, and only scope, collection and "
        "user are the operator's.",
    )
    type: Literal["Ephemeral", "Couchbase"] = Field(
        default="Ephemeral",
        description="Ephemeral lives in memory only; Couchbase also survives restarts of the servers.",
    )
    memory_quota: Bytes | None = Field(
        default=None,
        description="Memory of the bucket per data node, as Couchbase counts it, for example 8Gi; 100Mi at least. "
        "Absent: what the working set needs, at most half of what the cluster has free.",
    )
    replicas: int | None = Field(
        default=None,
        ge=0,
        le=3,
        description="Copies of each document on other nodes. Absent: 0 where that does not block automatic failover, "
        "else 1.",
    )
    eviction_policy: Literal["nruEviction", "noEviction", "valueOnly", "fullEviction"] | None = Field(
        default=None,
        description="What happens when the bucket is full. Absent: nruEviction, or fullEviction for type Couchbase.",
    )
    max_ttl: Duration | None = Field(
        default=None,
        alias="maxTTL",
        description="Upper limit of the lifetime of every document in the bucket. Enterprise only.",
    )
    accept_no_auto_failover: bool = Field(
        default=False,
        alias="acceptNoAutoFailover",
        description="Accept that an ephemeral bucket without replicas blocks automatic failover of the cluster.",
    )
    reclaim_policy: Literal["Retain", "Delete"] = Field(
        default="Retain",
        description="Retain keeps bucket and documents when this resource is deleted; applied again with the same name "
        "in the same namespace, it uses them again. Delete removes a bucket that the operator created.",
    )


class UserSpec(Model):
    """The least-privilege user the pods log in as: it reads and writes documents of the collection, nothing else.

    name cannot be changed later.
    """

    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        pattern=r'^[^\s()<>@,;:\\"/\[\]?={}]+$',
        description="Name of the user; derived from this resource when absent.",
    )


class CouchbaseSpec(Model):
    """The Couchbase cluster and what the cache uses of it."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "(has(self.provisioning) ? self.provisioning : (has(self.adminSecretRef) ? 'RestAPI' : 'External')) "
                "!= 'RestAPI' || has(self.adminSecretRef)",
                "adminSecretRef is required with provisioning RestAPI",
            ),
            rule(
                "(has(self.provisioning) ? self.provisioning : (has(self.adminSecretRef) ? 'RestAPI' : 'External')) "
                "!= 'External' || (has(self.credentialsSecretRef) && has(self.bucket) && has(self.bucket.name) "
                "&& has(self.scope) && has(self.collection))",
                "without an admin Secret (provisioning External) credentialsSecretRef, bucket.name, scope and "
                "collection are required",
            ),
            rule(
                "(has(self.provisioning) ? self.provisioning : (has(self.adminSecretRef) ? 'RestAPI' : 'External')) "
                "!= 'RestAPI' || !has(self.credentialsSecretRef)",
                "credentialsSecretRef is for provisioning External; with RestAPI the operator creates the user",
            ),
            rule(
                "(has(self.user) && has(self.user.name)) == (has(oldSelf.user) && has(oldSelf.user.name)) "
                "&& (!has(self.user) || !has(self.user.name) || self.user.name == oldSelf.user.name)",
                "user.name cannot be changed; create a new resource",
            ),
        )
    )
    connection_string: str = Field(
        min_length=1,
        max_length=1024,
        pattern=r"^couchbases?://[^\s/?#@]+/?(\?[^\s#]*)?$",
        description="couchbase:// or couchbases:// with one or more hosts. Options such as ?network=default are kept.",
    )
    management_endpoints: list[Endpoint] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra=LIST_SET,
        description="Management URLs, for example https://cb.example.com:18091. Absent: derived from the connection "
        "string with port 8091 or 18091.",
    )
    provisioning: Literal["RestAPI", "External"] | None = Field(
        default=None,
        description="RestAPI: the operator creates bucket, scope, collection and user. External: they exist. Absent: "
        "RestAPI when adminSecretRef is set, else External.",
    )
    admin_secret_ref: LocalReference | None = Field(
        default=None, description="Secret with keys username and password of a Couchbase administrator."
    )
    credentials_secret_ref: LocalReference | None = Field(
        default=None,
        description="Secret with keys username and password of an existing user, for provisioning External.",
    )
    tls: TlsSpec | None = Field(default=None, description="Trust for couchbases:// connections.")
    bucket: BucketSpec = Field(default_factory=BucketSpec, description="The bucket that holds the cache.")
    scope: Keyspace | None = Field(
        default=None, description="Scope in the bucket; derived from the namespace when absent."
    )
    collection: Keyspace | None = Field(
        default=None,
        description="Collection in the scope; derived from cache.shareGroup or this resource's name when absent.",
    )
    user: UserSpec | None = Field(default=None, description="The user that the pods log in as.")

    @property
    def resolved_provisioning(self) -> str:
        """Return the provisioning mode, worked out when it is absent."""
        return self.provisioning or ("RestAPI" if self.admin_secret_ref else "External")
