"""Reads a Kafka connection of Airflow and hands out this package's own view of the cluster.

The connection is of the existing type ``kafka``: its extra holds the client settings by librdkafka's names.
Host and port stand for ``bootstrap.servers``, login and password for ``sasl.username`` and ``sasl.password``,
where the extra does not say them. No connection type is registered here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import ApplicationSettings

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_kstreams.kafka.cluster import KafkaCluster

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
            connection = self.get_connection(self.kafka_conn_id)
        except AirflowNotFoundException:
            raise undefined_connection(self.kafka_conn_id) from None
        config = client_config_of(connection)
        for secret in secrets_of(config):
            mask_secret(secret)
        return config

    def cluster(self, settings: ApplicationSettings | None = None) -> KafkaCluster:
        """Return the cluster; touches no network yet.

        :param settings: of the application; bounds how long a request may take.
        :raises ConfigError: as :meth:`client_config`.
        """
        from airflow_kstreams.kafka.cluster import KafkaCluster

        return KafkaCluster(self.client_config(), settings=settings)

    def get_conn(self) -> KafkaCluster:
        """Return the cluster."""
        return self.cluster()


def client_config_of(connection: Connection) -> dict[str, str]:
    """Return the checked client settings that a connection holds, secrets included.

    :raises ConfigError: a setting is missing, unknown, owned by the engine or malformed.
    """
    from airflow_kstreams.kafka.settings import check_client_settings

    try:
        return check_client_settings(_settings_in(connection))
    except ConfigError as error:
        raise ConfigError(f"connection {connection.conn_id!r}: {error.cause}", fix=error.fix) from None


def secrets_of(config: Mapping[str, str]) -> list[str]:
    """Return the secret values among client settings, for masking."""
    from airflow_kstreams.kafka.settings import is_secret

    return [value for name, value in config.items() if value and is_secret(name)]


def undefined_connection(conn_id: str) -> ConfigError:
    """Build the error for a connection that Airflow does not know."""
    return ConfigError(
        f"connection {conn_id!r} is not defined in Airflow",
        fix=f"add it: airflow connections add {conn_id} --conn-type kafka "
        """--conn-extra '{"bootstrap.servers": "HOST:PORT"}'""",
    )


def _settings_in(connection: Connection) -> dict[str, Any]:
    settings = _extra_of(connection)
    if connection.host:
        address = f"{connection.host}:{connection.port}" if connection.port else connection.host
        settings.setdefault("bootstrap.servers", address)
    if connection.login:
        settings.setdefault("sasl.username", connection.login)
        if connection.password:
            settings.setdefault("sasl.password", connection.password)
    return settings


def _extra_of(connection: Connection) -> dict[str, Any]:
    if not connection.extra:
        return {}
    try:
        extra = json.loads(connection.extra)
    except ValueError:
        extra = None  # the decoder's error holds the document, secrets included
    if not isinstance(extra, dict):
        raise ConfigError(
            "the extra is not a JSON object", fix='write it as {"bootstrap.servers": "HOST:PORT", ...}'
        )
    return extra
