"""Reads and checks the settings of the schema registry's client.

They are client settings of Kafka with the prefix ``schema.registry.``, as in Kafka's own tools, and so travel
in the Kafka connection's extra or the file of client settings, never in a topology, a plan or a run spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from airflow_kstreams.kafka.configuration.known_settings import REGISTRY_SETTINGS
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import nearest

#: Prefix of every setting of the registry.
PREFIX = "schema.registry."

#: Settings by the client's own names: those that are text, and those that are whole numbers.
_TEXTS, _NUMBERS = REGISTRY_SETTINGS["texts"], REGISTRY_SETTINGS["numbers"]
#: The client itself would wait without end.
_DEFAULTS: Mapping[str, object] = {"timeout": 10}

_MOCK = "mock://"


def is_registry_setting(name: str) -> bool:
    """Return True if a client setting is meant for the schema registry."""
    return name.startswith(PREFIX)


def registry_settings(config: Mapping[str, str]) -> dict[str, str]:
    """Return the registry's settings among client settings, by the registry client's own names.

    :raises ConfigError: a name is unknown, a value is not the number or URL it must be, or the URL holds
        credentials.
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
    """Return the fault of a registry's URL, without repeating the URL: it may hold a password.

    :param url: several may be given, with commas between.
    """
    for part in url.split(","):
        try:
            split = urlsplit(part.strip())
        except ValueError:  # the error's text repeats the URL
            return "is no URL of a schema registry"
        if split.scheme not in ("http", "https", "mock") or not split.netloc:
            return "is no URL of a schema registry"
        if "@" in split.netloc:
            return "holds credentials"
        if split.query or split.fragment:
            return "holds more than an address"
    return None


def client_config(url: str, settings: Mapping[str, str]) -> dict[str, object]:
    """Return the configuration of the client for one registry.

    Settings that name a registry apply to that one only: another that a topology names gets none of them, so
    that credentials never reach a host they were not meant for.

    :param url: the registry that the topology names, "" for the one that the settings name.
    :param settings: values by the registry client's own names.
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
