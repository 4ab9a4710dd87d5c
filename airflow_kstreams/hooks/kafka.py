"""Reads a Kafka connection of Airflow and hands out this package's own view of the cluster.

The connection is of the existing type ``kafka``: its extra holds the client settings by librdkafka's names.
Where the extra lacks them, ``bootstrap.servers`` is host and port, and ``sasl.username`` and
``sasl.password`` are login and password. No connection type is registered here.

A user who may edit the connection must not thereby run code in Airflow or read its files, so settings that do
are refused unless the deployment's option ``[kstreams] allowed_client_settings`` allows them. No local
variable holds the connection object, because its ``repr`` shows its secrets.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_kstreams.hooks.airflow_versions import (
    AirflowNotFoundException,
    airflow_conf,
    amask_secret,
    mask_secret,
)
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import ApplicationSettings

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_kstreams.kafka.cluster import KafkaCluster
    from airflow_kstreams.kafka.configuration.code_settings import AllowedSettings

__all__ = ["DEFAULT_KAFKA_CONN_ID", "KafkaHook"]

#: The connection that Airflow's own Kafka provider uses by default, too.
DEFAULT_KAFKA_CONN_ID = "kafka_default"


class KafkaHook(BaseHook):
    """Turns a Kafka connection into a ``KafkaCluster``. Secrets are masked in logs and never shown in errors.

    :param kafka_conn_id: the connection.
    """

    default_conn_name = DEFAULT_KAFKA_CONN_ID
    hook_name = "Apache Kafka"

    def __init__(self, kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID) -> None:
        super().__init__()
        self.kafka_conn_id = kafka_conn_id

    def client_config(self) -> dict[str, str]:
        """Return the checked client settings, secrets included.

        :raises ConfigError: there is no such connection, or a setting is missing, unknown or owned by the
            engine.
        """
        try:
            settings = settings_in(self.get_connection(self.kafka_conn_id))
        except AirflowNotFoundException:
            raise undefined_connection(self.kafka_conn_id) from None
        for secret in secrets_of(settings):
            mask_secret(secret)
        return checked_settings(settings, conn_id=self.kafka_conn_id)

    def cluster(self, settings: ApplicationSettings | None = None, *, in_child: bool = True) -> KafkaCluster:
        """Return the cluster, without contacting it.

        :param settings: the application's settings; ``client.timeout.ms`` bounds each request.
        :param in_child: whether its readers fetch in a process of their own, whose memory is bounded; False
            for the engine's own work.
        :raises ConfigError: as :meth:`client_config`.
        """
        from airflow_kstreams.kafka.cluster import KafkaCluster

        return KafkaCluster(
            self.client_config(), settings=settings, allowed=allowed_settings(), in_child=in_child
        )

    def get_conn(self) -> KafkaCluster:
        """Return the cluster."""
        return self.cluster()


def checked_settings(settings: Mapping[str, Any], *, conn_id: str) -> dict[str, str]:
    """Check the client settings of a connection.

    :param settings: the result of :func:`settings_in`.
    :raises ConfigError: a setting is missing, unknown, owned by the engine, malformed, or runs code.
    """
    from airflow_kstreams.kafka.configuration.client_settings import ENGINE_OWNED, check_client_settings

    try:
        return check_client_settings(settings, allowed=allowed_settings())
    except ConfigError as error:
        fix = error.fix
        if ENGINE_OWNED.keys() & settings.keys():
            fix += "; if Airflow's own Kafka operators need it here, give them a connection of their own"
        raise ConfigError(f"connection {conn_id!r}: {error.cause}", fix=fix) from None


def allowed_settings() -> AllowedSettings:
    """Return the settings that run code or send files and that the deployment's administrator allows.

    :raises ConfigError: the option is not a list of settings.
    """
    from airflow_kstreams.kafka.configuration.code_settings import AllowedSettings

    return AllowedSettings.parse(airflow_conf().get("kstreams", "allowed_client_settings", fallback="") or "")


def secrets_of(config: Mapping[str, Any]) -> list[str]:
    """Return the secret values among client settings, with their parts and other forms, for masking."""
    from airflow_kstreams.kafka.configuration.secrets import secret_values

    return secret_values(config)


def undefined_connection(conn_id: str) -> ConfigError:
    """Build the error for a connection that Airflow does not know."""
    return ConfigError(
        f"connection {conn_id!r} is not defined in Airflow",
        fix=f"add it: airflow connections add {conn_id} --conn-type kafka "
        """--conn-extra '{"bootstrap.servers": "HOST:PORT"}'""",
    )


def settings_in(connection: Connection) -> dict[str, Any]:
    """Return the client settings that a connection holds, not yet checked; secret ones have no ``repr``.

    :raises ConfigError: the extra is not a JSON object.
    """
    from airflow_kstreams.kafka.configuration.secrets import sealed

    settings = _parsed(connection.extra)
    if settings is None:
        conn_id = connection.conn_id
        del connection
        raise ConfigError(
            f"connection {conn_id!r}: the extra is not a JSON object",
            fix='write it as {"bootstrap.servers": "HOST:PORT", ...}',
        )
    if connection.host:
        address = f"{connection.host}:{connection.port}" if connection.port else connection.host
        settings.setdefault("bootstrap.servers", address)
    if connection.login:
        settings.setdefault("sasl.username", connection.login)
        if connection.password:
            settings.setdefault("sasl.password", connection.password)
    return sealed(settings)


def _parsed(extra: str | None) -> dict[str, Any] | None:
    if not extra:
        return {}
    try:
        content = json.loads(extra)
    except ValueError:
        return None  # the decoder's error holds the document, secrets included
    return content if isinstance(content, dict) else None


async def client_config_of(conn_id: str) -> dict[str, str]:
    """Return the checked client settings that a connection holds; its secrets are masked in logs from now on.

    :raises ConfigError: there is no such connection, or a setting is missing, unknown or not allowed.
    """
    try:
        connection = await KafkaHook.aget_connection(conn_id)
    except AirflowNotFoundException:
        raise undefined_connection(conn_id) from None
    settings = settings_in(connection)
    for secret in secrets_of(settings):
        await amask_secret(secret)
    return await asyncio.to_thread(checked_settings, settings, conn_id=conn_id)


def cluster_of(config: Mapping[str, str]) -> KafkaCluster:
    """Return the cluster that client settings name, to look at it, without contacting it."""
    from airflow_kstreams.kafka.cluster import KafkaCluster

    return KafkaCluster(config, allowed=allowed_settings(), in_child=True)
