"""The settings of couchbase-lm-cache. Written by ``make generate`` from the plugin's settings."""

ADAPTER_SETTINGS = frozenset(
    {
        "bucket_name",
        "checksum",
        "collection_name",
        "connect_timeout_seconds",
        "connection_string",
        "connections_per_node",
        "key_prefix",
        "kv_timeout_seconds",
        "max_workers",
        "metrics_host",
        "metrics_port",
        "password",
        "password_file",
        "refresh_ttl",
        "require_checksum",
        "scope_name",
        "shard_size_bytes",
        "startup",
        "task_deadline_seconds",
        "tls_ca_file",
        "tls_skip_verify",
        "transport",
        "ttl_seconds",
        "username",
        "username_file",
    }
)
