"""Asks the schema registry that client settings name whether it answers, and takes the login."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_kstreams.kafka.configuration.registry_settings import client_config, registry_settings
from airflow_kstreams.kafka.configuration.secrets import without_secrets
from airflow_kstreams.kafka.schema_registry.asked_registry import AskedRegistry, RegistryError
from airflow_kstreams.kafka.schema_registry.binding import make_client, registry_fault
from airflow_kstreams.streams.secret_texts import shown_url

_SECONDS = 6


def ask_registry(config: Mapping[str, str]) -> str | None:
    """Ask for the types of schemas that the registry knows: it answers everyone whose login it takes.

    :param config: client settings of Kafka.
    :return: the registry's address, as it may be shown; None if the settings name none.
    :raises ConfigError: a setting is wrong, the client is not installed, or the login is refused.
    :raises SchemaRegistryUnavailableError: no registry answers.
    """
    settings = registry_settings(config)
    if not settings.get("url"):
        return None
    # One try: a look that waits for the next one says nothing in time.
    client = make_client({**client_config("", settings), "timeout": _SECONDS, "max.retries": 0})
    url = shown_url(settings["url"])
    try:
        AskedRegistry(client).get_schema_types()
    except RegistryError as fault:
        said = " ".join(without_secrets(f"{type(fault.cause).__name__}: {fault.cause}", settings).split())
        raise registry_fault(fault, url=url, what="the types of schemas", said=said[:300]) from None
    finally:
        client.close()
    return url
