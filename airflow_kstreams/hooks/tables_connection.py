"""Reads an Airflow connection that says where Iceberg and Delta tables are.

Its extra holds an object of texts: names that begin with ``iceberg.`` are properties of a catalogue, those
with ``delta.`` options of a storage (``tables/connections.py``). The connection may be of any type; host,
login and password are not read.

No local variable holds the connection object, because its ``repr`` shows its secrets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from airflow_kstreams.hooks.airflow_versions import AirflowNotFoundException, mask_secret
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.tables.connections import (
    REWRITTEN_BY_FINISH,
    OpenedTables,
    TablesSettings,
    open_tables,
    sealed_object,
)

if TYPE_CHECKING:
    from airflow.sdk import Connection

_EXTRA = '{"iceberg.type": "rest", "iceberg.uri": "https://HOST"}'


def tables_settings(conn_id: str) -> TablesSettings:
    """Return what a connection says of catalogues and storages; its secrets are masked in logs from now on.

    :param conn_id: the connection; empty: nothing is said.
    :raises ConfigError: there is no such connection, or its extra is no object of such settings.
    """
    if not conn_id:
        return TablesSettings({})
    try:
        settings = settings_of(BaseHook.get_connection(conn_id))
    except AirflowNotFoundException:
        raise ConfigError(
            f"connection {conn_id!r} is not defined in Airflow",
            fix=f"add it: airflow connections add {conn_id} --conn-type generic --conn-extra '{_EXTRA}'",
        ) from None
    for secret in settings.secrets:
        mask_secret(secret)
    return settings


def settings_of(connection: Connection) -> TablesSettings:
    """Return what a connection says of catalogues and storages.

    :raises ConfigError: its extra is no JSON object, or has other settings.
    """
    conn_id, settings = connection.conn_id, sealed_object(connection.extra or "{}")
    del connection
    if settings is None:
        raise ConfigError(
            f"connection {conn_id!r}: the extra is not a JSON object", fix=f"write it as {_EXTRA}"
        )
    try:
        return TablesSettings(settings)
    except ConfigError as error:
        del settings
        raise ConfigError(f"connection {conn_id!r}: {error.cause}", fix=error.fix) from None


def opened_tables(conn_id: str) -> OpenedTables:
    """Return what opens the tables of a connection, without contacting a catalogue or storage.

    An upsert that would rewrite much of an Iceberg table is left to a driver: a worker has no executors.

    :param conn_id: the connection; empty: nothing is said of tables, and only Delta tables can be opened,
        with what the environment says of their storage.
    :raises ConfigError: as for :func:`tables_settings`.
    """
    return open_tables(tables_settings(conn_id), most_rewritten=REWRITTEN_BY_FINISH)
