"""The settings of both plugins: one frozen record, read from their parameters and the environment.

Parameters are ``adapter_params`` of the L2 adapter or ``remote_storage_plugin.<name>.<field>`` keys of the
in-process connector. A field that is absent from them falls back to the environment variable named in its
metadata (``LMCACHE_COUCHBASE_…``), then to its default. Unknown, contradictory and out-of-range
settings are refused by name: a mistyped option must not silently mean its default.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from couchbase_lm_cache.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_DOCUMENT_BYTES = 20 * 1024 * 1024
"""Largest value Couchbase Server accepts (its documented 20 MiB limit)."""

MAX_TASK_DEADLINE_SECONDS = 60.0
"""LMCache frees read locks after 300 s; store tasks may take four deadlines and must end well before."""

logger = logging.getLogger(__name__)

_REQUIRED = ("connection_string", "bucket_name")
_ENVIRONMENT_PREFIX = "LMCACHE_COUCHBASE_"
_LMCACHE_KEYS = frozenset({"module_path", "class_name"})
"""Keys under a plugin's name that LMCache reads itself, to find the class."""
_SECONDS_IN_30_YEARS = 30 * 365 * 86400
_TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
_FALSE_WORDS = frozenset({"0", "false", "no", "off"})


def _setting(default: Any, doc: str, *, env: str | None = None, secret: bool = False) -> Any:
    """Declare a field with its help text and, where it differs from the name, its environment suffix."""
    return dataclasses.field(default=default, repr=not secret, metadata={"doc": doc, "env": env, "secret": secret})


@dataclass(frozen=True)
class CouchbaseLMCacheConfig:
    """All settings. Build it with :meth:`from_dict` or :meth:`from_env`; the constructor validates too.

    Raises:
        SettingsError: a value is missing, of the wrong type, out of range, or contradicts another.
    """

    connection_string: str = _setting(
        "",
        "`couchbase://` or `couchbases://` address of the cluster; add `?network=default` where pods must use the "
        "addresses inside Kubernetes",
        env="CONNSTR",
    )
    bucket_name: str = _setting("", "bucket that holds the cache", env="BUCKET")
    scope_name: str = _setting("_default", "scope inside the bucket", env="SCOPE")
    collection_name: str = _setting("_default", "collection inside the scope", env="COLLECTION")
    username: str | None = _setting(None, "the Couchbase user; required, unless `username_file` is set")
    username_file: str | None = _setting(None, "file that holds the username; read again when it changes")
    password: str | None = _setting(
        None,
        "its password; required, unless `password_file` is set. Parameters are shown by LMCache's HTTP port: use the "
        "file or the environment",
        secret=True,
    )
    password_file: str | None = _setting(None, "file that holds the password; read again when it changes")
    key_prefix: str = _setting(
        "",
        "put before every document key. Servers share what they store under the same prefix: change it whenever the "
        "bytes of a chunk change but its key does not (another model revision, dtype, vLLM or LMCache version)",
    )
    ttl_seconds: int = _setting(0, "lifetime of documents; 0 keeps them until they are evicted")
    refresh_ttl: bool = _setting(True, "give objects a new lifetime that are hit in the second half of theirs")
    kv_timeout_seconds: float = _setting(5.0, "limit of one key-value call to Couchbase")
    connect_timeout_seconds: float = _setting(
        10.0, "limit of a strict start; one attempt to connect gets four fifths of it"
    )
    task_deadline_seconds: float = _setting(
        20.0, "a lookup or load that takes longer ends as a miss; stores, which hold no request up, get four times it"
    )
    transport: str = _setting(
        "auto",
        "`direct` speaks to the data nodes, `sdk` uses the official SDK, `auto` is direct after a check at start and "
        "the SDK where that fails",
    )
    connections_per_node: int = _setting(4, "connections of the direct transport to each data node for loads")
    max_workers: int = _setting(8, "threads that load; half as many store")
    shard_size_bytes: int = _setting(1024 * 1024, "largest document that a chunk is split into, 1 KiB to 20 MiB")
    checksum: str = _setting(
        "xxh3", "`xxh3` verifies every byte that is loaded (about 0.02 s per GB); `none` writes the plain format"
    )
    require_checksum: bool = _setting(False, "treat objects that were stored without checksums as misses")
    metrics_port: int = _setting(0, "port that serves `/metrics` alone; 0 opens none")
    metrics_host: str = _setting(
        "127.0.0.1", "address that the metrics port listens on; empty for all addresses, IPv4 and IPv6"
    )
    startup: str = _setting(
        "strict",
        "`strict`: the start fails when Couchbase cannot be used within `connect_timeout_seconds`. `degraded`: it "
        "succeeds at once, misses are served and Couchbase is connected in the background",
    )
    tls_ca_file: str | None = _setting(None, "PEM file with the CA that signed the cluster's certificates")
    tls_skip_verify: bool = _setting(False, "accept any certificate; for tests")

    def __post_init__(self) -> None:
        """Validate; see the class docstring."""
        for field in dataclasses.fields(self):
            _check_type(field, getattr(self, field.name))
        self._check_presence()
        self._check_choices()
        self._check_ranges()
        self._check_tls()

    @classmethod
    def from_dict(cls, params: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> CouchbaseLMCacheConfig:
        """Build settings from ``adapter_params``, with the environment for what is left out.

        Raises:
            SettingsError: a key is not a setting, or a value is refused.
        """
        environ = os.environ if environ is None else environ
        _refuse_unknown(params)
        fields = {field.name: field for field in dataclasses.fields(cls)}
        values: dict[str, Any] = dict(params)
        for name, field in fields.items():
            variable = environment_variable(field)
            # A secret given one way must not meet its twin from the environment.
            twin = name.removesuffix("_file") if name.endswith("_file") else f"{name}_file"
            if name not in values and twin not in params and environ.get(variable):
                values[name] = _parse_environment(field, variable, environ[variable])
        return cls(**values)

    @classmethod
    def from_extra_config(
        cls, extra_config: Mapping[str, Any], plugin_name: str, environ: Mapping[str, str] | None = None
    ) -> CouchbaseLMCacheConfig:
        """Build settings from ``remote_storage_plugin.<plugin_name>.<field>`` keys, with the environment for the rest.

        Keys of other plugins and LMCache's own are none of ours. A key with another dot behind the name
        belongs to a plugin whose name begins like this one.

        Raises:
            SettingsError: a key is not a setting (the message holds the whole key), or a value is refused.
        """
        prefix = f"remote_storage_plugin.{plugin_name}."
        params = {key.removeprefix(prefix): value for key, value in extra_config.items() if key.startswith(prefix)}
        params = {name: value for name, value in params.items() if name not in _LMCACHE_KEYS and "." not in name}
        _refuse_unknown(params, prefix)
        if params.get("password"):
            logger.warning(
                "%spassword stands in a configuration file: use password_file or %sPASSWORD instead",
                prefix,
                _ENVIRONMENT_PREFIX,
            )
        return cls.from_dict(params, environ)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> CouchbaseLMCacheConfig:
        """Build settings from ``LMCACHE_COUCHBASE_*`` variables alone."""
        return cls.from_dict({}, environ)

    def redacted(self) -> dict[str, Any]:
        """Return the settings for logs: secrets masked, unset fields left out."""
        shown: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                shown[field.name] = "***" if field.metadata["secret"] else value
        return shown

    @property
    def store_deadline_seconds(self) -> float:
        """A store holds no request up, so it gets four times a load's deadline."""
        return 4 * self.task_deadline_seconds

    @property
    def verifies_content(self) -> bool:
        """Whether chunks are written with checksums."""
        return self.checksum == "xxh3"

    def _check_presence(self) -> None:
        for name in _REQUIRED:
            if not getattr(self, name):
                variable = environment_variable(type(self).__dataclass_fields__[name])
                raise SettingsError(f"{name} is missing: set it as a parameter or in {variable}")
        for name in ("username", "password"):
            given = [option for option in (name, f"{name}_file") if getattr(self, option)]
            if not given:
                raise SettingsError(f"{name} is missing: set {name} or {name}_file")
            if len(given) > 1:
                raise SettingsError(f"{given[0]} and {given[1]} contradict each other: set only one of them")

    def _check_choices(self) -> None:
        choices_of = {
            "checksum": ("xxh3", "none"),
            "startup": ("strict", "degraded"),
            "transport": ("auto", "direct", "sdk"),
        }
        for name, choices in choices_of.items():
            if getattr(self, name) not in choices:
                raise SettingsError(f"{name} is {getattr(self, name)!r}: it must be {' or '.join(choices)}")
        if self.require_checksum and not self.verifies_content:
            raise SettingsError("require_checksum needs checksum: xxh3 (what is written without one is never read)")

    def _check_ranges(self) -> None:
        _check_range("ttl_seconds", self.ttl_seconds, 0, _SECONDS_IN_30_YEARS)
        _check_range("kv_timeout_seconds", self.kv_timeout_seconds, 0.1, MAX_TASK_DEADLINE_SECONDS)
        _check_range("connect_timeout_seconds", self.connect_timeout_seconds, 0.5, 600)
        _check_range("task_deadline_seconds", self.task_deadline_seconds, 0.5, MAX_TASK_DEADLINE_SECONDS)
        _check_range("max_workers", self.max_workers, 1, 256)
        _check_range("connections_per_node", self.connections_per_node, 1, 32)
        _check_range("metrics_port", self.metrics_port, 0, 65535)
        _check_range("shard_size_bytes", self.shard_size_bytes, 1024, MAX_DOCUMENT_BYTES)
        if self.kv_timeout_seconds > self.task_deadline_seconds:
            raise SettingsError("kv_timeout_seconds must not exceed task_deadline_seconds")

    def _check_tls(self) -> None:
        scheme = self.connection_string.split("://", 1)[0] if "://" in self.connection_string else ""
        if scheme not in ("couchbase", "couchbases"):
            raise SettingsError("connection_string must start with couchbase:// or couchbases://")
        if "@" in self.connection_string:
            raise SettingsError("connection_string must not hold a user or password: use username and password_file")
        try:
            urlsplit(self.connection_string)
        except ValueError:
            raise SettingsError("connection_string is not a valid address: look at its brackets") from None
        if scheme == "couchbase" and (self.tls_ca_file or self.tls_skip_verify):
            raise SettingsError("tls_ca_file and tls_skip_verify need a couchbases:// connection_string")
        if self.tls_ca_file and self.tls_skip_verify:
            raise SettingsError("tls_ca_file and tls_skip_verify contradict each other: set only one of them")


def environment_variable(field: dataclasses.Field[Any]) -> str:
    """Name the environment variable a field falls back to."""
    return _ENVIRONMENT_PREFIX + (field.metadata["env"] or field.name.upper())


def _check_range(name: str, value: float, lowest: float, highest: float) -> None:
    # NaN fails both comparisons, so it is refused here as well.
    if not lowest <= value <= highest:
        raise SettingsError(f"{name} is {value}: it must be between {lowest:g} and {highest:g}")


def _check_type(field: dataclasses.Field[Any], value: object) -> None:
    accepted = {"str": (str,), "str | None": (str, type(None)), "bool": (bool,), "int": (int,), "float": (int, float)}
    kinds = accepted[str(field.type)]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        shown = "its value" if field.metadata["secret"] else repr(value)
        raise SettingsError(f"{field.name} must be of type {field.type}, not {type(value).__name__} ({shown})")


def _parse_environment(field: dataclasses.Field[Any], variable: str, text: str) -> Any:
    kind = str(field.type)
    try:
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
    except ValueError:
        raise SettingsError(f"{variable} is {text!r}: it must be a number") from None
    if kind == "bool":
        if text.lower() not in _TRUE_WORDS | _FALSE_WORDS:
            raise SettingsError(f"{variable} is {text!r}: it must be true or false")
        return text.lower() in _TRUE_WORDS
    return text


def _refuse_unknown(params: Mapping[str, Any], prefix: str = "") -> None:
    known = [field.name for field in dataclasses.fields(CouchbaseLMCacheConfig)]
    unknown = sorted(set(params) - set(known))
    if unknown:
        close = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f"; did you mean {prefix}{close[0]}?" if close else f"; known are {', '.join(known)}"
        raise SettingsError(f"{prefix}{unknown[0]} is not a setting of couchbase-lm-cache{hint}")


def describe_settings() -> str:
    """List every setting with its default, its environment variable and its meaning, one per line."""
    return "\n".join(
        f"- {field.name} ({field.type}, {default_text(field)}, {environment_variable(field)}): {field.metadata['doc']}"
        for field in dataclasses.fields(CouchbaseLMCacheConfig)
    )


def default_text(field: dataclasses.Field[Any]) -> str:
    """Say what a field is when nobody sets it, for people."""
    return "required" if field.name in _REQUIRED else f"default {field.default!r}"
