"""Opens the stores of an application that runs, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_kstreams.batch.inspect.state import StoredState
from airflow_kstreams.explore.tables import Progress
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.topology import Topology


def stored_state(
    topology: Topology,
    store: str,
    bootstrap: str | Mapping[str, object],
    *,
    application_id: str,
    progress: Progress | None = None,
) -> StoredState:
    """Open a store of an application as its last finished run left it; while a run is under way, as of the
    last commit of each of its tasks, which ``as_of`` says.

    ::

        with stored_state(topology(), "totals", "localhost:9092", application_id="orders") as totals:
            totals.get("ann")
            [(entry.key, entry.value) for entry in totals.all()]
            print(totals.as_of())  # as of run scheduled__2026-01-01T00:00:00, finished ...

    Only the store's changelog is read, and nothing is written to Kafka.

    :param topology: the application file's, which holds the serdes.
    :param store: name of the store.
    :param bootstrap: Kafka's address, ``host:port[,host:port]``, or client settings by librdkafka's names.
    :param application_id: the application.
    :param progress: called with the number of offsets read so far, and of all that are to be read.
    :raises ConfigError: there is no such store, or no run has written it yet; or a setting is wrong.
    :raises StateStoreError: the runs have written the store with other serdes, or as another kind of store.
    :raises DataLossError: a part of the changelog was deleted.
    :raises KafkaClientError: the broker does not answer, or does not let this user read what is needed.
    """
    # Imported here: exploring a stored sample needs no Kafka client.
    from airflow_kstreams.kafka.cluster import KafkaCluster

    config = {"bootstrap.servers": bootstrap} if isinstance(bootstrap, str) else bootstrap
    cluster = KafkaCluster(config, settings=ApplicationSettings.parse(application_id, {}))
    return StoredState(cluster, topology, application_id, store, progress=progress)
