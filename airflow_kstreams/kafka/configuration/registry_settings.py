"""Settings of the schema registry's client: which there are, and what the client is given.

They stand among the Kafka client's settings, each behind ``schema.registry.``, as Kafka's own tools have
them, and so travel the way those do: in the Kafka connection's extra or the file of client settings, never in
a topology, a plan or a run spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import nearest

#: What stands before the name of every setting of the registry.
PREFIX = "schema.registry."

#: Settings that are text, by the client's own names.
_TEXTS = (
    "url",
    "basic.auth.user.info",
    "bearer.auth.credentials.source",
    "bearer.auth.token",
    "bearer.auth.client.id",
    "bearer.auth.client.secret",
    "bearer.auth.scope",
    "bearer.auth.issuer.endpoint.url",
    "bearer.auth.issuer.endpoint.query",
    "bearer.auth.logical.cluster",
    "bearer.auth.identity.pool.id",
    "proxy",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
)
#: Settings that are whole numbers; ``timeout`` is in seconds.
_NUMBERS = (
    "timeout",
    "max.retries",
    "retries.wait.ms",
    "retries.max.wait.ms",
    "cache.capacity",
    "cache.latest.ttl.sec",
)
#: The client itself would wait without end.
_DEFAULTS: Mapping[str, object] = {"timeout": 10}

_MOCK = "mock://"


def is_registry_setting(name: str) -> bool:
    """Whether a client setting is meant for the schema registry."""
    return name.startswith(PREFIX)


def registry_settings(config: Mapping[str, str]) -> dict[str, str]:
    """Return what client settings say about the registry, by the registry client's own names.

    :raises ConfigError: a name is unknown, a number is none, or the URL is none or holds credentials.
    """
    settings: dict[str, str] = {}
    for name, value in config.items():
        if not is_registry_setting(name):
            continue
        own = name.removeprefix(PREFIX)
        if own not in (*_TEXTS, *_NUMBERS):
            known = [PREFIX + known for known in (*_TEXTS, *_NUMBERS)]
            raise ConfigError(f"unknown client setting {name!r}", fix=nearest(name, known))
        if own in _NUMBERS and not value.isdecimal():
            raise ConfigError(
                f"client setting {name!r} is not a whole number", fix=f"write it as in {name}=10"
            )
        settings[own] = value
    fault = url_fault(settings["url"]) if settings.get("url") else None
    if fault:
        raise ConfigError(
            f"client setting '{PREFIX}url' {fault}",
            fix=f"write http(s)://HOST:PORT; credentials go into {PREFIX}basic.auth.user.info",
        )
    return settings


def url_fault(url: str) -> str | None:
    """Say what is wrong with a registry's URL, without repeating it: it may hold a password.

    :param url: several may be given, with commas between.
    """
    for part in url.split(","):
        try:
            split = urlsplit(part.strip())
        except ValueError:  # its text repeats the URL
            return "is no URL of a schema registry"
        if split.scheme not in ("http", "https", "mock") or not split.netloc:
            return "is no URL of a schema registry"
        if "@" in split.netloc:
            return "holds credentials"
    return None


def client_config(url: str, settings: Mapping[str, str]) -> dict[str, object]:
    """Return the configuration of the client for one registry.

    Settings that name a registry are for that one: another that a topology names gets none of them, so that
    credentials never reach a host they were not meant for.

    :param url: as the topology names it, "" for the one that the settings name.
    :param settings: by the registry client's own names.
    :raises ConfigError: neither names a registry.
    """
    configured = settings.get("url", "")
    if not url and not configured:
        raise ConfigError(
            f"no schema registry is named: there is no client setting '{PREFIX}url'",
            fix=f"put {PREFIX}url into the extra of the Kafka connection or the file of client settings, or "
            "write SchemaRegistry('http://HOST:8081') in the application file",
        )
    elsewhere = url != "" and configured != "" and _plain(url) != _plain(configured)
    if elsewhere or url.startswith(_MOCK):
        return {**_DEFAULTS, "url": url}
    given = {name: int(value) if name in _NUMBERS else value for name, value in settings.items()}
    return {**_DEFAULTS, **given, "url": url or configured}


def _plain(url: str) -> str:
    return ",".join(part.strip().rstrip("/") for part in url.split(","))
