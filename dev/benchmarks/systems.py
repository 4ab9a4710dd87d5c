"""The systems that are measured: this engine, its peers, loops by hand, and the clients alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Guarantee = Literal["exactly_once", "at_least_once", "none"]
#: Where results go: to a topic, to a table of a format, or to a folder of Parquet files.
Target = Literal["topic", "iceberg", "delta", "parquet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Something that is measured.

    :param host: the process that runs it, see :mod:`dev.benchmarks.hosts`.
    :param empty_host: the process that runs it when nothing is new, unless it is the same.
    :param rounds: at most of throughput, of what takes minutes; 0 for no limit.
    :param warmed: by a run before the first round: on all of the input, as compilers of JVMs need it, on a
        little, so that workers are started, or not at all.
    :param output: whether its output is compared with ours: all of it, its number of records, or none.
    :param target: where its results go.
    """

    name: str
    title: str
    guarantee: Guarantee
    host: str
    empty_host: str = ""
    rounds: int = 0
    warmed: Literal["all", "little", "not"] = "little"
    output: Literal["compared", "counted", "none"] = "compared"
    target: Target = "topic"

    @property
    def label(self) -> str:
        """Its name and, where there are two, its guarantee."""
        return f"{self.title}, {self.guarantee.replace('_', ' ')}" if self.guarantee != "none" else self.title


OURS = System(
    name="airflow-kstreams",
    title="airflow_kstreams",
    guarantee="exactly_once",
    host="engine",
    # An empty run of this engine is what Airflow's worker does: Spark is not started.
    empty_host="airflow",
)
OURS_AT_LEAST_ONCE = System(
    name="airflow-kstreams", title="airflow_kstreams", guarantee="at_least_once", host="engine"
)
#: Another revision of this engine; it answers to the same name.
EARLIER = System(
    name="airflow-kstreams",
    title="airflow_kstreams, earlier",
    guarantee="exactly_once",
    host="engine-earlier",
    empty_host="airflow-earlier",
)
#: With the classes that ``airflow-kstreams prepare-spark`` keeps.
OURS_PREPARED = System(
    name="airflow-kstreams-prepared",
    title="airflow_kstreams, Spark prepared",
    guarantee="exactly_once",
    host="engine-prepared",
)
#: The same work in vectors: the topology of the workload's name and ``_batches``.
OURS_BY_BATCHES = System(
    name="airflow-kstreams-batches",
    title="airflow_kstreams, map_batches",
    guarantee="exactly_once",
    host="engine",
)
#: Each operator in a Python of its own, from the moment when it has imported ``airflow.sdk``: where workers
#: fork for a task, it has that from its parent.
OURS_IN_THREE = System(
    name="airflow-kstreams-three",
    title="airflow_kstreams, three processes",
    guarantee="exactly_once",
    host="engine",
    empty_host="airflow-tasks",
)
#: The same from the start of each process, where a worker starts a Python for a task.
OURS_IN_THREE_STARTED = System(
    name="airflow-kstreams-three-started",
    title="airflow_kstreams, three processes with their start",
    guarantee="exactly_once",
    host="engine",
    empty_host="airflow-tasks",
)
HAND_WRITTEN = System(name="hand-written", title="hand-written loop", guarantee="exactly_once", host="engine")
#: The same loop where records cross between Python and the client by columns.
HAND_WRITTEN_BY_COLUMNS = System(
    name="hand-written-columns",
    title="hand-written loop by columns",
    guarantee="exactly_once",
    host="engine",
)
AVAILABLE_NOW = System(
    name="spark-available-now",
    title="Spark AvailableNow",
    guarantee="at_least_once",
    host="connector",
    warmed="all",
)
SPARK_BATCH = System(
    name="spark-batch",
    title="Spark batch read",
    guarantee="at_least_once",
    host="connector",
    warmed="all",
)
KAFKA_STREAMS = System(
    name="kafka-streams",
    title="Kafka Streams, tuned",
    guarantee="exactly_once",
    host="kafka-streams",
    warmed="all",
)
KAFKA_STREAMS_AT_LEAST_ONCE = System(
    name="kafka-streams",
    title="Kafka Streams, tuned",
    guarantee="at_least_once",
    host="kafka-streams",
    warmed="all",
)
#: With nothing set but threads, commit interval and guarantee: its stores are in RocksDB.
KAFKA_STREAMS_PLAIN = System(
    name="kafka-streams-plain",
    title="Kafka Streams, plain",
    guarantee="exactly_once",
    host="kafka-streams-plain",
    warmed="all",
)
QUIX = System(
    name="quix-streams",
    title="Quix Streams, tuned",
    guarantee="exactly_once",
    host="quix-streams",
    rounds=1,
    warmed="not",
)
QUIX_PLAIN = System(
    name="quix-streams-plain",
    title="Quix Streams, plain",
    guarantee="exactly_once",
    host="quix-streams",
    rounds=1,
    warmed="not",
)
RAW_CONSUME = System(
    name="raw-consume", title="raw consume", guarantee="none", host="engine", rounds=3, output="none"
)
RAW_PRODUCE = System(
    name="raw-produce", title="raw produce", guarantee="none", host="engine", rounds=3, output="counted"
)
RAW_CONSUME_BY_COLUMNS = System(
    name="raw-consume-columns",
    title="raw consume by columns",
    guarantee="none",
    host="engine",
    rounds=3,
    output="none",
)
RAW_PRODUCE_BY_COLUMNS = System(
    name="raw-produce-columns",
    title="raw produce by columns",
    guarantee="none",
    host="engine",
    rounds=3,
    output="counted",
)

#: The same work with a table at its end: the topology of the workload's name and ``_iceberg`` or ``_delta``.
OURS_TO_ICEBERG = System(
    name="airflow-kstreams-iceberg",
    title="airflow_kstreams to Iceberg",
    guarantee="exactly_once",
    host="engine",
    target="iceberg",
)
OURS_TO_DELTA = System(
    name="airflow-kstreams-delta",
    title="airflow_kstreams to Delta",
    guarantee="exactly_once",
    host="engine",
    target="delta",
)
AVAILABLE_NOW_TO_PARQUET = System(
    name="spark-available-now-parquet",
    title="Spark AvailableNow to Parquet",
    guarantee="exactly_once",
    host="connector",
    warmed="all",
    target="parquet",
)
#: The library's own merge of rows that are in memory.
DELTA_MERGE = System(
    name="deltalake-merge", title="deltalake's merge", guarantee="none", host="tables", target="delta"
)
#: The libraries' own commits of files that are described.
BARE_ICEBERG = System(name="pyiceberg", title="pyiceberg's commit", guarantee="none", host="tables")
BARE_DELTA = System(name="deltalake", title="deltalake's commit", guarantee="none", host="tables")
#: A hundredth of the files.
FEW_FILES = System(
    name="airflow-kstreams-few",
    title="airflow_kstreams to Iceberg, a hundredth of the files",
    guarantee="exactly_once",
    host="tables",
)
FEW_FILES_DELTA = System(
    name="airflow-kstreams-few-delta",
    title="airflow_kstreams to Delta, a hundredth of the files",
    guarantee="exactly_once",
    host="tables",
)
#: The table has had a hundred snapshots.
FEW_SNAPSHOTS = System(
    name="airflow-kstreams-few",
    title="airflow_kstreams, after 100 snapshots",
    guarantee="exactly_once",
    host="tables",
)
KEPT_SNAPSHOTS = System(
    name="airflow-kstreams-kept",
    title="airflow_kstreams, no snapshot expires",
    guarantee="exactly_once",
    host="tables",
)
#: A sixteenth of the rows, of 24 days.
FEW_DAYS = System(
    name="airflow-kstreams-few",
    title="airflow_kstreams, a sixteenth of the rows, 24 days",
    guarantee="exactly_once",
    host="tables",
)

PEERS = (AVAILABLE_NOW, SPARK_BATCH, KAFKA_STREAMS, KAFKA_STREAMS_AT_LEAST_ONCE, QUIX)
PLAIN = (KAFKA_STREAMS_PLAIN, QUIX_PLAIN)
LOOPS = (HAND_WRITTEN, HAND_WRITTEN_BY_COLUMNS)
RAW = (RAW_CONSUME, RAW_PRODUCE, RAW_CONSUME_BY_COLUMNS, RAW_PRODUCE_BY_COLUMNS)
#: Whose processor time is compared with ours. A loop by columns is as little as can be done by the library
#: that this engine works with, and no rival.
RIVALS = (HAND_WRITTEN, *PEERS, *PLAIN)
