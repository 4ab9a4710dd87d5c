"""Checks client settings (librdkafka's names) before any connection is made.

Rule: what this module lets through, every client of this package accepts; what it refuses, it refuses by
name, with the application setting to use instead or the nearest known name. The client library itself decides
whether a name exists, so a newer library needs no change here: its constructor sets properties in order and
stops at the first unknown one, so a sentinel placed last is reported exactly when everything before it was
accepted. No client is ever created by the check. Settings of the schema registry travel among the Kafka
client's and are checked by a rule of their own (``schema_registry/settings.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from confluent_kafka import KafkaException, Producer

from airflow_kstreams.kafka.configuration.code_settings import TOKEN_CALLBACK, AllowedSettings
from airflow_kstreams.kafka.configuration.known_settings import JAVA_SETTINGS, KNOWN_SETTINGS
from airflow_kstreams.kafka.configuration.registry_settings import is_registry_setting, registry_settings
from airflow_kstreams.kafka.configuration.secrets import sealed, without_secrets
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import SETTINGS, nearest

#: Settings that carry the protocol's guarantees, and what a user who wants to change one should do.
ENGINE_OWNED: Mapping[str, str] = {
    "group.id": "it is the application id; choose another application.id",
    "group.instance.id": "the engine assigns partitions itself and joins no group; remove it",
    "isolation.level": "it follows processing.guarantee; set that application setting",
    "transactional.id": "it is derived from the application id and the task; choose another application.id",
    "transaction.timeout.ms": "set the application setting transaction.timeout.ms",
    "enable.auto.commit": "offsets are committed with the results; set the application setting "
    "commit.interval.ms",
    "auto.commit.enable": "offsets are committed with the results; set the application setting "
    "commit.interval.ms",
    "auto.commit.interval.ms": "set the application setting commit.interval.ms",
    "enable.auto.offset.store": "offsets are committed with the results; set the application setting "
    "commit.interval.ms",
    "enable.idempotence": "it is always on; set the application setting processing.guarantee",
    "enable.partition.eof": "runs are bounded by stop offsets; set the application setting autostop.at",
    "auto.offset.reset": "it is always error, so that loss is never silent; set the application setting "
    "first.run.offsets for the first run",
    "acks": "it is always all; set the application setting processing.guarantee",
    "request.required.acks": "it is always all; set the application setting processing.guarantee",
    "offset.store.method": "offsets are committed to Kafka with the results; remove it",
    "offset.store.path": "offsets are committed to Kafka with the results; remove it",
    "offset.store.sync.interval.ms": "offsets are committed to Kafka with the results; remove it",
    "partitioner": "it is always murmur2_random, as in Java's producer; choose another key instead",
    "delivery.report.only.error": "the engine reads delivery reports itself; remove it",
    "allow.auto.create.topics": "topics are created explicitly, by begin or by you; remove it",
    "retry.backoff.ms": "the exactly once defence depends on it; remove it",
    "log.queue": "client logs go to the logger airflow_kstreams.kafka.client; remove it",
    "statistics.interval.ms": "the engine reads the statistics itself; remove it",
}

_SENTINEL = "airflow.kstreams.end.of.settings"
_UNKNOWN = re.compile(r'No such configuration property: "(?P<name>.*)"')


def check_client_settings(
    config: Mapping[str, object], *, allowed: AllowedSettings | None = None
) -> dict[str, str]:
    """Check client settings given by the user.

    :param config: librdkafka name -> value; numbers and booleans are turned into text.
    :param allowed: allowed ones of the settings that run code or send files; those that the environment
        allows unless given.
    :return: the settings as text, those of the schema registry included; secret values as ``Secret``.
    :raises ConfigError: ``bootstrap.servers`` is missing, or a setting is unknown, Java's, owned by the
        engine, runs code, sends what is the machine's, or has a value that the client refuses.
    """
    (allowed or AllowedSettings.of_environment()).check(config)
    checked = sealed({name: _as_text(name, value) for name, value in sealed(config).items()})
    _refuse_unencodable(checked)
    _refuse_java(checked)
    registry_settings(checked)
    of_kafka = without_registry(checked)
    for name in of_kafka:
        _check_name(name)
    if not checked.get("bootstrap.servers", "").strip():
        raise ConfigError(
            "client setting 'bootstrap.servers' is missing",
            fix="set it to host:port of at least one Kafka broker",
        )
    _ask_client(of_kafka)
    return checked


def without_registry(config: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that Kafka's own client takes."""
    return {name: value for name, value in config.items() if not is_registry_setting(name)}


def _check_name(name: str) -> None:
    if name in ENGINE_OWNED:
        raise ConfigError(f"client setting {name!r} is owned by the engine", fix=ENGINE_OWNED[name])
    if name in SETTINGS:
        raise ConfigError(
            f"{name!r} is an application setting, found among the client settings",
            fix="move it to the application settings",
        )


def _refuse_unencodable(config: Mapping[str, str]) -> None:
    """Refuse text that is no UTF-8, which JSON can hold: the client library ends the process at it."""
    for name, value in config.items():
        for what, text in (("name", name), ("value", value)):
            try:
                text.encode()
            except UnicodeEncodeError:
                raise ConfigError(
                    f"the {what} of client setting {name!r} holds half a character, as in \\ud800 in JSON",
                    fix="write whole characters",
                ) from None


def _refuse_java(config: Mapping[str, str]) -> None:
    for name in config:
        fix = JAVA_SETTINGS.get(name)
        if fix is not None:
            raise ConfigError(f"client setting {name!r} is one that only Java's clients know", fix=fix)


def _as_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    raise ConfigError(
        f"client setting {name!r} must be text, a number or a boolean, got {type(value).__name__}",
        fix="give a plain value; callbacks are not accepted",
    )


def _ask_client(config: Mapping[str, str]) -> None:
    """Check names and values with the client library, without creating a client."""
    reason = ""
    try:
        Producer({**{n: v for n, v in config.items() if n != TOKEN_CALLBACK}, _SENTINEL: ""})
    except KafkaException as error:
        reason = without_secrets(error.args[0].str(), config)
    except (ValueError, ImportError) as error:  # of what the client adds in Python
        reason = without_secrets(str(error), config)
    match = _UNKNOWN.search(reason)
    if match and match["name"] == _SENTINEL:
        return
    if match:
        name = match["name"]
        known = [known for known in (*KNOWN_SETTINGS, *SETTINGS) if known not in ENGINE_OWNED]
        raise ConfigError(f"unknown client setting {name!r}", fix=nearest(name, known))
    raise ConfigError(
        f"the Kafka client refuses a setting: {reason}",
        fix="correct the value; the names and ranges are in librdkafka's CONFIGURATION.md",
    )
