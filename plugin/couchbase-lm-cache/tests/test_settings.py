"""Settings: where they come from, and what is refused by name."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from couchbase_lm_cache.errors import SettingsError
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig, describe_settings

COMPLETE: dict[str, Any] = {
    "connection_string": "couchbase://cb",
    "bucket_name": "cache",
    "username": "user",
    "password": "s3cret",
}


def settings(**changes: Any) -> CouchbaseLMCacheConfig:
    return CouchbaseLMCacheConfig.from_dict(COMPLETE | changes, environ={})


def test_defaults_are_those_of_the_documentation() -> None:
    built = settings()
    assert (built.scope_name, built.collection_name) == ("_default", "_default")
    assert built.shard_size_bytes == 1024 * 1024
    assert (built.checksum, built.startup, built.ttl_seconds) == ("xxh3", "strict", 0)


def test_the_environment_fills_what_the_parameters_leave_out() -> None:
    environ = {
        "LMCACHE_COUCHBASE_CONNSTR": "couchbases://env",
        "LMCACHE_COUCHBASE_BUCKET": "from-env",
        "LMCACHE_COUCHBASE_USERNAME": "u",
        "LMCACHE_COUCHBASE_PASSWORD": "p",
        "LMCACHE_COUCHBASE_TTL_SECONDS": "60",
        "LMCACHE_COUCHBASE_REFRESH_TTL": "false",
        "LMCACHE_COUCHBASE_KV_TIMEOUT_SECONDS": "1.5",
    }
    built = CouchbaseLMCacheConfig.from_dict({"bucket_name": "from-params"}, environ)
    assert built.connection_string == "couchbases://env"
    assert built.bucket_name == "from-params"
    assert (built.ttl_seconds, built.refresh_ttl, built.kv_timeout_seconds) == (60, False, 1.5)
    assert CouchbaseLMCacheConfig.from_env(environ).bucket_name == "from-env"


def test_a_password_file_in_the_parameters_outranks_a_password_in_the_environment() -> None:
    parameters = {key: value for key, value in COMPLETE.items() if key != "password"}
    built = CouchbaseLMCacheConfig.from_dict(
        parameters | {"password_file": "/run/pw"}, {"LMCACHE_COUCHBASE_PASSWORD": "old"}
    )
    assert (built.password, built.password_file) == (None, "/run/pw")


def test_the_password_is_never_shown() -> None:
    built = settings()
    assert "s3cret" not in repr(built)
    assert "s3cret" not in str(built.redacted())
    assert built.redacted()["password"] == "***"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"buket_name": "x"}, "did you mean bucket_name"),
        ({"frobnicate": 1}, "frobnicate is not a setting"),
        ({"connection_string": ""}, "LMCACHE_COUCHBASE_CONNSTR"),
        ({"connection_string": "http://cb"}, "couchbase:// or couchbases://"),
        ({"connection_string": "couchbase://me:pw@cb"}, "must not hold a user or password"),
        ({"connection_string": "couchbase://[::1"}, "connection_string is not a valid address"),
        ({"bucket_name": ""}, "bucket_name is missing"),
        ({"username": None}, "username is missing"),
        ({"username_file": "/run/u"}, "username and username_file contradict"),
        ({"password_file": "/run/p"}, "password and password_file contradict"),
        ({"checksum": "md5"}, "checksum is 'md5'"),
        ({"startup": "lazy"}, "startup is 'lazy'"),
        ({"checksum": "none", "require_checksum": True}, "require_checksum needs"),
        ({"ttl_seconds": -1}, "ttl_seconds is -1"),
        ({"shard_size_bytes": 21 * 1024 * 1024}, "shard_size_bytes"),
        ({"max_workers": 0}, "max_workers is 0"),
        ({"max_workers": True}, "max_workers must be of type int, not bool"),
        ({"max_workers": "8"}, "max_workers must be of type int, not str"),
        ({"kv_timeout_seconds": float("nan")}, "kv_timeout_seconds is nan"),
        ({"kv_timeout_seconds": 30.0}, "must not exceed task_deadline_seconds"),
        ({"task_deadline_seconds": 3600}, "task_deadline_seconds"),
        ({"tls_ca_file": "/ca.pem"}, "need a couchbases://"),
        (
            {"connection_string": "couchbases://cb", "tls_ca_file": "/ca.pem", "tls_skip_verify": True},
            "contradict each other",
        ),
    ],
)
def test_bad_settings_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named.replace("(", r"\(")):
        settings(**changes)


def test_a_refused_password_is_not_repeated() -> None:
    with pytest.raises(SettingsError) as refused:
        settings(password=12345)
    assert "12345" not in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "text"),
    [("LMCACHE_COUCHBASE_TTL_SECONDS", "soon"), ("LMCACHE_COUCHBASE_REFRESH_TTL", "perhaps")],
)
def test_an_unreadable_variable_is_named(variable: str, text: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        CouchbaseLMCacheConfig.from_dict(COMPLETE, {variable: text})


def test_every_setting_is_described() -> None:
    text = describe_settings()
    assert all(f"- {field.name} (" in text for field in dataclasses.fields(CouchbaseLMCacheConfig))


def extra_config(**fields: Any) -> dict[str, Any]:
    return {
        "remote_storage_plugin.couchbase.module_path": "couchbase_lm_cache.connector",
        "remote_storage_plugin.couchbase.class_name": "CouchbaseConnector",
        "remote_storage_plugin.couchbase2.bucket_name": "of another plugin",
        "remote_storage_plugin.couchbase.second.bucket_name": "of yet another",
        "save_chunk_meta": True,
        **{f"remote_storage_plugin.couchbase.{name}": value for name, value in fields.items()},
    }


def test_extra_config_fills_the_settings_before_the_environment_does() -> None:
    environ = {
        "LMCACHE_COUCHBASE_CONNSTR": "couchbase://env",
        "LMCACHE_COUCHBASE_USERNAME": "u",
        "LMCACHE_COUCHBASE_PASSWORD": "p",
        "LMCACHE_COUCHBASE_BUCKET": "from-env",
        "LMCACHE_COUCHBASE_TTL_SECONDS": "60",
    }
    given = extra_config(bucket_name="from-yaml", password_file="/run/pw")
    built = CouchbaseLMCacheConfig.from_extra_config(given, "couchbase", environ)
    assert (built.connection_string, built.bucket_name, built.ttl_seconds) == ("couchbase://env", "from-yaml", 60)
    assert (built.password, built.password_file) == (None, "/run/pw")
    assert built.scope_name == "_default"
    assert environ["LMCACHE_COUCHBASE_PASSWORD"] == "p"


def test_an_unknown_field_in_extra_config_is_refused_by_its_whole_key() -> None:
    given = extra_config(**COMPLETE, ttl_second=5)
    with pytest.raises(SettingsError) as refused:
        CouchbaseLMCacheConfig.from_extra_config(given, "couchbase", {})
    assert "remote_storage_plugin.couchbase.ttl_second is not a setting" in str(refused.value)
    assert "did you mean remote_storage_plugin.couchbase.ttl_seconds?" in str(refused.value)


def test_a_password_in_extra_config_is_warned_about_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    CouchbaseLMCacheConfig.from_extra_config(extra_config(**COMPLETE), "couchbase", {})
    assert "remote_storage_plugin.couchbase.password stands in a configuration file" in caplog.text
    assert "s3cret" not in caplog.text
