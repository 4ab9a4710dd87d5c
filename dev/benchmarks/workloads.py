"""What the suite measures: each workload, and the systems that run it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

from dev.benchmarks.systems import (
    AVAILABLE_NOW,
    AVAILABLE_NOW_TO_PARQUET,
    BARE_DELTA,
    BARE_ICEBERG,
    DELTA_MERGE,
    FEW_DAYS,
    FEW_FILES,
    FEW_FILES_DELTA,
    FEW_SNAPSHOTS,
    HAND_WRITTEN,
    KAFKA_STREAMS,
    KAFKA_STREAMS_AT_LEAST_ONCE,
    KAFKA_STREAMS_PLAIN,
    KEPT_SNAPSHOTS,
    LOOPS,
    OURS,
    OURS_AT_LEAST_ONCE,
    OURS_BY_BATCHES,
    OURS_IN_THREE,
    OURS_IN_THREE_STARTED,
    OURS_PREPARED,
    OURS_TO_DELTA,
    OURS_TO_ICEBERG,
    PEERS,
    PLAIN,
    QUIX,
    QUIX_PLAIN,
    RAW,
    SPARK_BATCH,
    System,
)

#: ``throughput``: much input at once; ``started``: the same in processes that have done nothing before;
#: ``cold``: their start counts, too; ``hourly``: a little more than in the run before; ``empty``: nothing
#: more; ``memory``: one run in fresh workers. Without Spark: ``files``: a finish of a run with so many files;
#: ``snapshots``: a commit to a table that has had so many; ``days``: one task that writes rows of many days.
Kind = Literal["throughput", "started", "cold", "hourly", "empty", "memory", "files", "snapshots", "days"]
Codec = Literal["", "lz4", "zstd"]

#: So many rounds decide a bar: their median must pass it.
DECIDING_ROUNDS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One thing that systems do, side by side.

    :param shows: in a line.
    :param topology: a key of ``suite_topologies.TOPOLOGIES``; empty for what has a topology of its own.
    :param records: input records of a measured run; files or snapshots where the line is about these.
    :param before: input records of an earlier run of the same application, not measured.
    :param reads: input topics, by the names they have in the topology.
    :param keys: different ones of events and users.
    :param value_bytes: size of a record's value; 0 for whatever it takes.
    :param partitions: of every input topic, and of the output.
    :param codec: that compresses input and output; empty for input as it is and output by lz4.
    :param in_full: systems that have all of the rounds, though they take minutes.
    :param table: whether outputs are equal when their last values per key are.
    :param part_of: a workload with which this one is measured, too; empty for none.
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
    partitions: int = 2
    codec: Codec = ""
    rounds: int = DECIDING_ROUNDS
    in_full: tuple[System, ...] = ()
    table: bool = False
    part_of: str = ""

    def rounds_of(self, system: System) -> int:
        """Return how many rounds a system has."""
        limited = self.kind == "throughput" and system.rounds and system not in self.in_full
        return min(self.rounds, system.rounds) if limited else self.rounds


_OURS_BOTH = (OURS, OURS_AT_LEAST_ONCE)
_OURS_AND_JAVA = (OURS, KAFKA_STREAMS)
_OURS_TO_TABLES = (OURS, OURS_TO_ICEBERG, OURS_TO_DELTA)
#: By size of a value in bytes: input records of a run.
_SIZES: Mapping[int, int] = {100: 2_000_000, 2_000: 400_000}
_CODECS: tuple[Codec, ...] = ("lz4", "zstd")


def _by_size_partitions_and_codec() -> Iterator[Workload]:
    """Yield a line for each size of records, number of partitions and codec."""
    for value_bytes, partitions, codec in product(_SIZES, (1, 4, 16), _CODECS):
        many = f"{partitions} partitions" if partitions > 1 else "1 partition"
        yield Workload(
            name=f"padded-{value_bytes}-{partitions}-{codec}",
            shows=f"JSON filter and map, records of {value_bytes:,} bytes, {many}, {codec}",
            topology="padded",
            records=_SIZES[value_bytes],
            value_bytes=value_bytes,
            partitions=partitions,
            codec=codec,
            systems=_OURS_AND_JAVA,
        )


#: Sizes of records, numbers of partitions and codecs, each with each.
MATRIX = tuple(_by_size_partitions_and_codec())

_ALL = (
    Workload(
        name="stateless",
        shows="JSON filter and map, records of about 90 bytes",
        topology="stateless",
        records=4_000_000,
        systems=(*_OURS_BOTH, OURS_BY_BATCHES, *LOOPS, *PEERS, *PLAIN, *RAW),
        in_full=(QUIX, QUIX_PLAIN),
    ),
    Workload(
        name="sum-50k",
        shows="sum by key, 50,000 keys",
        topology="sum_by_key",
        records=4_000_000,
        systems=(*_OURS_BOTH, *LOOPS, *PEERS, *PLAIN),
        table=True,
    ),
    Workload(
        name="stateless-started",
        shows="JSON filter and map in processes started for it",
        kind="started",
        topology="stateless",
        records=4_000_000,
        systems=(OURS, OURS_PREPARED, AVAILABLE_NOW, KAFKA_STREAMS, KAFKA_STREAMS_PLAIN),
        rounds=3,
    ),
    Workload(
        name="sum-50k-started",
        shows="sum by key, 50,000 keys, in processes started for it",
        kind="started",
        topology="sum_by_key",
        records=4_000_000,
        systems=(OURS, OURS_PREPARED, AVAILABLE_NOW, KAFKA_STREAMS, KAFKA_STREAMS_PLAIN),
        rounds=3,
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
        rounds=3,
    ),
    Workload(
        name="bytes-2k",
        shows="JSON filter and map that keeps sizes, records of 2,000 bytes",
        topology="padded",
        records=400_000,
        value_bytes=2_000,
        systems=(OURS, HAND_WRITTEN, AVAILABLE_NOW, KAFKA_STREAMS, *RAW),
        rounds=3,
    ),
    *MATRIX,
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
        systems=(OURS, OURS_IN_THREE, OURS_IN_THREE_STARTED, AVAILABLE_NOW, KAFKA_STREAMS, QUIX),
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
        rounds=3,
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
        name="table-append",
        shows="JSON filter and map to tables, and to a topic",
        topology="stateless",
        records=4_000_000,
        systems=(*_OURS_TO_TABLES, AVAILABLE_NOW_TO_PARQUET),
    ),
    Workload(
        name="table-small",
        shows="10,000 records more than in the run before, two stages, to tables and to a topic",
        kind="hourly",
        topology="two_stage",
        records=10_000,
        before=100_000,
        keys=5_000,
        systems=_OURS_TO_TABLES,
        table=True,
    ),
    Workload(
        name="table-upsert",
        shows="a row for each of 2 million keys, 100,000 records more than in the run before",
        kind="hourly",
        topology="newest",
        records=100_000,
        before=2_000_000,
        keys=2_000_000,
        systems=(*_OURS_TO_TABLES, DELTA_MERGE),
        table=True,
    ),
    Workload(
        name="table-files",
        shows="the finish of a run with 2,000 files, and the libraries' bare commits of them",
        kind="files",
        topology="",
        records=2_000,
        systems=(OURS, BARE_ICEBERG, FEW_FILES, OURS_TO_DELTA, BARE_DELTA, FEW_FILES_DELTA),
    ),
    Workload(
        name="table-snapshots",
        shows="a commit to an Iceberg table after 5,000 snapshots, the last 100 kept",
        kind="snapshots",
        topology="",
        records=5_000,
        systems=(OURS, FEW_SNAPSHOTS, KEPT_SNAPSHOTS),
        part_of="table-files",
    ),
    Workload(
        name="table-days",
        shows="a task's memory, 16 million rows of 3,650 days to an Iceberg table of days",
        kind="days",
        topology="",
        records=16_000_000,
        systems=(OURS, FEW_DAYS),
        rounds=1,
        part_of="table-files",
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
