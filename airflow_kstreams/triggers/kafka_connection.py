"""Makes triggers a Kafka cluster from a connection, without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import amask_secret

from airflow_kstreams.hooks.kafka import (
    KafkaHook,
    allowed_settings,
    checked_settings,
    secrets_of,
    settings_in,
    undefined_connection,
)

if TYPE_CHECKING:
    from airflow_kstreams.kafka.cluster import KafkaCluster


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
    """Return the cluster that client settings name, without contacting it."""
    from airflow_kstreams.kafka.cluster import KafkaCluster

    return KafkaCluster(config, allowed=allowed_settings())
