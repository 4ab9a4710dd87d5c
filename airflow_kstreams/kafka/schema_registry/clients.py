"""Makes the schema registry's clients of this process: one per configuration, when a task first needs it.

Rule: the task that binds a serde makes the client, in the process that uses it; a client is never pickled,
and building a topology makes none. Tasks of one process share a client, and so its memory of schemas and ids:
each is asked for once per process. A ``mock://`` registry lives as long as its client, so everything in one
process that names the same one shares it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_kstreams.kafka.configuration.registry_settings import client_config, registry_settings
from airflow_kstreams.kafka.configuration.secrets import without_secrets
from airflow_kstreams.streams.errors import ConfigError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

#: Settings of :func:`configure` in this process, by the registry client's own names.
_settings: dict[str, str] = {}
_clients: dict[tuple[tuple[str, object], ...], SchemaRegistryClient] = {}
#: Tasks of one process bind side by side.
_lock = threading.Lock()


def configure(config: Mapping[str, str]) -> None:
    """Set this process's settings of schema registries; a host of tasks calls it before they start.

    Serdes that are bound already keep their client.

    :param config: the Kafka client's settings; only those that start with ``schema.registry.`` count, and
        they replace what was set before.
    :raises ConfigError: one of them is unknown or malformed.

    >>> from airflow_kstreams.kafka import schema_registry
    >>> schema_registry.configure({"schema.registry.url": "mock://demo"})
    >>> schema_registry.SchemaRegistry().client() is schema_registry.SchemaRegistry("mock://demo").client()
    True
    >>> schema_registry.configure({})
    """
    settings = registry_settings(config)
    with _lock:
        _settings.clear()
        _settings.update(settings)


def client_of(url: str) -> SchemaRegistryClient:
    """Return this process's client of a registry, without contacting the registry.

    :param url: the registry that the topology names, "" for the one that the settings name.
    :raises ConfigError: no registry is named, the client refuses a setting, or it is not installed.
    """
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise missing_library(error) from None
    with _lock:
        config = client_config(url, _settings)
        key = tuple(sorted(config.items()))
        if key not in _clients:
            try:
                _clients[key] = SchemaRegistryClient.new_client(config)
            except Exception as error:  # any error of the client, OpenSSL or the file system
                raise ConfigError(
                    f"the schema registry's client refuses its settings: {type(error).__name__}: "
                    f"{without_secrets(str(error), _settings)}",
                    fix="correct the client settings that start with schema.registry.",
                ) from None
        return _clients[key]


def missing_library(error: ImportError) -> ConfigError:
    """Build the error for a library that the extra would have brought."""
    return ConfigError(
        f"serdes of a schema registry need a library that is not installed here: {error.name or error}",
        fix="pip install 'airflow-kstreams[schema-registry]' wherever tasks run: on Spark's executors (or "
        "bring it by `airflow-kstreams pack --extras schema-registry`), and where topologies are tested",
    )
