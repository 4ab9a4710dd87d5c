"""Opens Kafka for the API server, by a connection that Airflow holds.

Rule: what is contacted stands in a connection, which is looked up for the team of the DAG that names it; no
address comes from a request or from a DAG. The API server has the keys of all teams, so a connection there
gets less than in a worker: a setting that runs code, or sends what is the machine's own, is refused whatever
``[kstreams] allowed_client_settings`` allows elsewhere. The texts of errors that reach a page name settings
and connections, and no address and no value: who sees a run may not see connections.

No local variable holds the connection object, because its ``repr`` shows its secrets.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from airflow.models.connection import Connection

from airflow_kstreams.hooks.airflow_versions import (
    AirflowNotFoundException,
    airflow_conf,
    has_teams,
    mask_secret,
)
from airflow_kstreams.hooks.kafka import secrets_of, settings_in
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.kafka.configuration.client_settings import check_client_settings
from airflow_kstreams.kafka.configuration.code_settings import AllowedSettings
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings

log = package_log(__name__)

_CONNECTION_ID = re.compile(r"[\w.-]{1,250}\Z", re.ASCII)
_NOTHING = AllowedSettings()
#: Least time of a look for which a client's own limit can be set, milliseconds; a shorter one has that limit,
#: and ends sooner.
_LEAST_MS = 2_000


class PageSource(NamedTuple):
    """A connection, as the DAGs of one team have it.

    :param conn_id: id of the connection.
    :param team: name of the DAG's team; None without one.
    """

    conn_id: str
    team: str | None


class NotReadError(Exception):
    """Kafka is not read.

    :param why: a clause for the page, without an address or a value.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def reads_kafka() -> bool:
    """Return whether the deployment lets the API server read Kafka."""
    return bool(airflow_conf().getboolean("kstreams", "pages_read_kafka", fallback=True))


def opened(source: PageSource, look_ms: int) -> ClusterPort:
    """Return the cluster that a connection names, without contacting it.

    :param look_ms: bound of all requests together, from now on, milliseconds.
    :raises NotReadError: the connection is not defined for the team, or cannot be used here.
    """
    if not _CONNECTION_ID.match(source.conn_id):
        raise NotReadError("its DAG names no connection that can be looked up")
    settings = _settings(source)
    for secret in secrets_of(settings):
        mask_secret(secret)
    try:
        _NOTHING.check(settings)
    except ConfigError as error:
        raise NotReadError(
            f"connection {source.conn_id!r} has a setting that the API server does not honour: {error.cause}"
        ) from None
    try:
        return KafkaCluster(
            check_client_settings(settings, allowed=_NOTHING),
            settings=ApplicationSettings.parse("pages").of_look(max(look_ms, _LEAST_MS)),
            allowed=_NOTHING,
            look_ms=look_ms,
            in_child=True,
        )
    except ConfigError as error:
        log.warning("Connection %s cannot be used for pages: %s", source.conn_id, error.cause)
        raise NotReadError(
            f"connection {source.conn_id!r} cannot be used (the API server's log says why)"
        ) from None


def _settings(source: PageSource) -> dict[str, Any]:
    try:
        if not airflow_conf().getboolean("core", "multi_team", fallback=False):
            return settings_in(Connection.get_connection_from_secrets(source.conn_id))
        if not has_teams():
            raise NotReadError("Airflow looks connections up by team from release 3.2 on")
        return settings_in(Connection.get_connection_from_secrets(source.conn_id, team_name=source.team))
    except AirflowNotFoundException:
        raise NotReadError(f"connection {source.conn_id!r} is not defined for its DAG") from None
    except ConfigError as error:
        raise NotReadError(error.cause) from None
