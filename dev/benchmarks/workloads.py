"""What the suite measures: systems and workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Guarantee = Literal["exactly_once", "at_least_once", "none"]
#: ``throughput``: much input at once; ``started``: the same in processes that have done nothing before;
#: ``cold``: their start counts, too; ``hourly``: a little more than in the run before; ``empty``: nothing
#: more; ``memory``: one run in fresh workers.
Kind = Literal["throughput", "started", "cold", "hourly", "empty", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Something that is measured.

    :param host: the process that runs it, see :mod:`dev.benchmarks.hosts`.
    :param rounds: at most of throughput, so that those that a bar of few percent compares can have more of
        them in the same time; 0 for no limit.
    :param warmed: by a run before the first round: on all of the input, as compilers of JVMs need it, on a
        little, so that workers are started, or not at all.
    :param output: whether its output is compared with ours: all of it, its number of records, or none.
    """

    name: str
    title: str
    guarantee: Guarantee
    host: str
    rounds: int = 0
    warmed: Literal["all", "little", "not"] = "little"
    output: Literal["compared", "counted", "none"] = "compared"

    @property
    def label(self) -> str:
        """Its name and, where there are two, its guarantee."""
        return f"{self.title}, {self.guarantee.replace('_', ' ')}" if self.guarantee != "none" else self.title


OURS = System(name="airflow-kstreams", title="airflow_kstreams", guarantee="exactly_once", host="engine")
OURS_AT_LEAST_ONCE = System(
    name="airflow-kstreams", title="airflow_kstreams", guarantee="at_least_once", host="engine"
)
#: Another revision of this engine; it answers to the same name.
EARLIER = System(
    name="airflow-kstreams",
    title="airflow_kstreams, earlier",
    guarantee="exactly_once",
    host="engine-earlier",
)
#: With the classes that ``airflow-kstreams prepare-spark`` keeps.
OURS_PREPARED = System(
    name="airflow-kstreams-prepared",
    title="airflow_kstreams, Spark prepared",
    guarantee="exactly_once",
    host="engine-prepared",
)
HAND_WRITTEN = System(name="hand-written", title="hand-written loop", guarantee="exactly_once", host="engine")
AVAILABLE_NOW = System(
    name="spark-available-now",
    title="Spark AvailableNow",
    guarantee="at_least_once",
    host="connector",
    rounds=5,
    warmed="all",
)
SPARK_BATCH = System(
    name="spark-batch",
    title="Spark batch read",
    guarantee="at_least_once",
    host="connector",
    rounds=3,
    warmed="all",
)
KAFKA_STREAMS = System(
    name="kafka-streams",
    title="Kafka Streams, tuned",
    guarantee="exactly_once",
    host="kafka-streams",
    rounds=5,
    warmed="all",
)
KAFKA_STREAMS_AT_LEAST_ONCE = System(
    name="kafka-streams",
    title="Kafka Streams, tuned",
    guarantee="at_least_once",
    host="kafka-streams",
    rounds=3,
    warmed="all",
)
#: With nothing set but threads, commit interval and guarantee: its stores are in RocksDB.
KAFKA_STREAMS_PLAIN = System(
    name="kafka-streams-plain",
    title="Kafka Streams, plain",
    guarantee="exactly_once",
    host="kafka-streams-plain",
    rounds=5,
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

PEERS = (AVAILABLE_NOW, SPARK_BATCH, KAFKA_STREAMS, KAFKA_STREAMS_AT_LEAST_ONCE, QUIX)
PLAIN = (KAFKA_STREAMS_PLAIN, QUIX_PLAIN)
RAW = (RAW_CONSUME, RAW_PRODUCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One thing that systems do, side by side.

    :param shows: in a line.
    :param topology: a key of ``suite_topologies.TOPOLOGIES``.
    :param records: input records of a measured run.
    :param before: input records of an earlier run of the same application, not measured.
    :param reads: input topics, by the names they have in the topology.
    :param keys: different ones of events and users.
    :param value_bytes: size of a record's value; 0 for whatever it takes.
    :param table: whether outputs are equal when their last values per key are.
    """

    name: str
    shows: str
    topology: str
    records: int
    systems: tuple[System, ...]
    kind: Kind = "throughput"
    before: int = 0
    reads: tuple[str, ...] = ("events",)
    keys: int = 50_000
    value_bytes: int = 0
    rounds: int = 3
    table: bool = False

    @property
    def partitions(self) -> int:
        """Of every input topic."""
        return 2


_OURS_BOTH = (OURS, OURS_AT_LEAST_ONCE)
_OURS_AND_JAVA = (OURS, KAFKA_STREAMS)

_ALL = (
    Workload(
        name="stateless",
        shows="JSON filter and map, records of about 90 bytes",
        topology="stateless",
        records=4_000_000,
        systems=(*_OURS_BOTH, HAND_WRITTEN, *PEERS, *PLAIN, *RAW),
        rounds=7,
    ),
    Workload(
        name="sum-50k",
        shows="sum by key, 50,000 keys",
        topology="sum_by_key",
        records=4_000_000,
        systems=(*_OURS_BOTH, HAND_WRITTEN, *PEERS, *PLAIN),
        rounds=7,
        table=True,
    ),
    Workload(
        name="stateless-started",
        shows="JSON filter and map in processes started for it",
        kind="started",
        topology="stateless",
        records=4_000_000,
        systems=(OURS, OURS_PREPARED, AVAILABLE_NOW, KAFKA_STREAMS, KAFKA_STREAMS_PLAIN),
    ),
    Workload(
        name="sum-50k-started",
        shows="sum by key, 50,000 keys, in processes started for it",
        kind="started",
        topology="sum_by_key",
        records=4_000_000,
        systems=(OURS, OURS_PREPARED, AVAILABLE_NOW, KAFKA_STREAMS, KAFKA_STREAMS_PLAIN),
        table=True,
    ),
    Workload(
        name="sum-2m",
        shows="sum by key, 2 million keys",
        topology="sum_by_key",
        records=4_000_000,
        keys=2_000_000,
        systems=(OURS, HAND_WRITTEN, AVAILABLE_NOW, SPARK_BATCH, KAFKA_STREAMS, KAFKA_STREAMS_PLAIN),
        table=True,
    ),
    Workload(
        name="join",
        shows="windowed join of flights and weather, six copies of 2013's three airports",
        topology="join",
        records=2_000_000,
        reads=("flights", "weather"),
        systems=(*_OURS_BOTH, *PEERS),
    ),
    Workload(
        name="two-stage",
        shows="another key through a repartition topic, then sum",
        topology="two_stage",
        records=2_000_000,
        systems=(*_OURS_BOTH, *PEERS),
        table=True,
    ),
    Workload(
        name="stream-table",
        shows="every event with its user as of its time, 50,000 users",
        topology="stream_table",
        records=1_000_000,
        reads=("events", "users"),
        systems=_OURS_AND_JAVA,
    ),
    Workload(
        name="tables",
        shows="two tables joined on their keys, 50,000 of them",
        topology="tables",
        records=1_000_000,
        reads=("events", "users"),
        systems=_OURS_AND_JAVA,
        table=True,
    ),
    Workload(
        name="foreign-key",
        shows="two tables joined by a foreign key that 100 of 50,000 entries share",
        topology="foreign_key",
        records=400_000,
        reads=("events", "users"),
        systems=_OURS_AND_JAVA,
        table=True,
    ),
    Workload(
        name="table-groups",
        shows="a table filtered, mapped and summed by groups that its entries come to and leave",
        topology="table_groups",
        records=1_000_000,
        systems=_OURS_AND_JAVA,
        table=True,
    ),
    Workload(
        name="cogroup",
        shows="two streams folded into one table, 50,000 keys",
        topology="cogroup",
        records=1_000_000,
        reads=("events", "users"),
        systems=_OURS_AND_JAVA,
        table=True,
    ),
    Workload(
        name="tumbling",
        shows="sum by key and tumbling window, given when it is closed, 500 keys",
        topology="tumbling",
        records=1_000_000,
        keys=500,
        systems=_OURS_AND_JAVA,
        table=True,
    ),
    Workload(
        name="sliding",
        shows="sum by key and sliding window, 8 windows around each record, 500 keys",
        topology="sliding",
        records=100_000,
        keys=500,
        systems=_OURS_AND_JAVA,
        table=True,
    ),
    Workload(
        name="session",
        shows="sum by key and session of some 20 records, 500 keys",
        topology="session",
        records=400_000,
        keys=500,
        systems=_OURS_AND_JAVA,
        table=True,
    ),
    Workload(
        name="bytes-100",
        shows="JSON filter and map that keeps sizes, records of 100 bytes",
        topology="padded",
        records=2_000_000,
        value_bytes=100,
        systems=(OURS, HAND_WRITTEN, AVAILABLE_NOW, KAFKA_STREAMS, *RAW),
    ),
    Workload(
        name="bytes-2k",
        shows="JSON filter and map that keeps sizes, records of 2,000 bytes",
        topology="padded",
        records=400_000,
        value_bytes=2_000,
        systems=(OURS, HAND_WRITTEN, AVAILABLE_NOW, KAFKA_STREAMS, *RAW),
    ),
    Workload(
        name="cold",
        shows="first run of 10,000 records, two stages, processes started for it",
        kind="cold",
        topology="two_stage",
        records=10_000,
        keys=5_000,
        systems=(OURS, OURS_PREPARED, AVAILABLE_NOW, SPARK_BATCH, KAFKA_STREAMS, QUIX),
        table=True,
    ),
    Workload(
        name="empty",
        shows="nothing new since the run before, two stages",
        kind="empty",
        topology="two_stage",
        records=0,
        before=100_000,
        keys=5_000,
        systems=(OURS, AVAILABLE_NOW, KAFKA_STREAMS, QUIX),
        rounds=5,
        table=True,
    ),
    Workload(
        name="hourly",
        shows="10,000 records more than in the run before, two stages",
        kind="hourly",
        topology="two_stage",
        records=10_000,
        before=100_000,
        keys=5_000,
        systems=(*_OURS_BOTH, AVAILABLE_NOW, KAFKA_STREAMS, KAFKA_STREAMS_AT_LEAST_ONCE, QUIX),
        rounds=5,
        table=True,
    ),
    Workload(
        name="memory-1m",
        shows="sum by key of 1 million records in fresh workers",
        kind="memory",
        topology="sum_by_key",
        records=1_000_000,
        systems=(OURS,),
        rounds=1,
        table=True,
    ),
    Workload(
        name="last-50k",
        shows="the last five amounts by key in a list, 50,000 keys",
        topology="last_by_key",
        records=1_000_000,
        systems=(OURS,),
        table=True,
    ),
    Workload(
        name="memory-16m",
        shows="sum by key of 16 million records in fresh workers",
        kind="memory",
        topology="sum_by_key",
        records=16_000_000,
        systems=(OURS,),
        rounds=1,
        table=True,
    ),
    Workload(
        name="guard-stateless",
        shows="the short form of `stateless` that guards speed in CI",
        topology="stateless",
        records=1_000_000,
        systems=(OURS, HAND_WRITTEN),
        rounds=5,
    ),
    Workload(
        name="guard-sum",
        shows="the short form of `sum-50k` that guards speed in CI",
        topology="sum_by_key",
        records=1_000_000,
        systems=(OURS, HAND_WRITTEN),
        rounds=5,
        table=True,
    ),
)
WORKLOADS: Mapping[str, Workload] = {workload.name: workload for workload in _ALL}
GUARDS = tuple(workload for workload in _ALL if workload.name.startswith("guard-"))
SYSTEMS = tuple(dict.fromkeys(system for workload in _ALL for system in workload.systems))
