"""What the stages of a simulated topology do, as data that oracles read; and the topology with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from airflow_kstreams.streams import StoreSpec, Topology, VersionedStoreSpec
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.streams.serde import serdes
from tests.simulation.given import Result
from tests.simulation.steps import Steps, nothing_fails

APPLICATION_ID = "sim"
CHANGELOG = f"{APPLICATION_ID}-s-changelog"
REPARTITION = f"{APPLICATION_ID}-s-repartition"
DEAD_LETTERS = f"{APPLICATION_ID}-dead-letter"
#: In which tasks list the files that they have written for tables.
TABLE_FILES = f"{APPLICATION_ID}-table-files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A stage that writes, for each record it reads, some records to one topic.

    :param results: (key, value) -> the (key, value) pairs it writes.
    :param fails: whether a value goes to the dead-letter topic instead.
    :param step: through which each record with results goes, once.
    """

    sources: tuple[str, ...]
    sink: str
    results: Callable[[str, str], list[tuple[str, str]]]
    fails: Callable[[str], bool] = nothing_fails
    step: str = ""

    @property
    def steps(self) -> tuple[str, ...]:
        """Its steps."""
        return (self.step,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A stage that joins the values of each key, and writes what it has at its commit points.

    :param changelog: holds the state.
    :param mark: appended to what it writes.
    :param window_ms: size of the windows in which it folds; the key it writes then says which. 0 for none.
    :param again: changelog of a second fold in the same task, of what the first one gives; empty for none.
    :param beside: a second source, whose values are folded with the first one's and end with an r; empty for
        none.
    """

    source: str
    sink: str
    changelog: str
    mark: str = ""
    window_ms: int = 0
    again: str = ""
    beside: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads."""
        return (self.source, self.beside) if self.beside else (self.source,)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldsAtOnce:
    """A stage that joins the values of each key record by record, twice, with a step above, between and below
    the folds; each may make a dead letter of a record.

    :param changelog: of the first fold.
    :param again: of the second one, of what the first one gives.
    :param steps: their names.
    """

    source: str
    sink: str
    changelog: str
    again: str
    steps: tuple[str, str, str]

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads."""
        return (self.source,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """A stage that collects the values of each key per time window, and writes a window when it closes.

    :param advance_ms: from one window's start to the next one's; the size for windows that do not overlap.
    """

    source: str
    sink: str
    changelog: str
    size_ms: int
    advance_ms: int
    grace_ms: int

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads."""
        return (self.source,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindows:
    """A stage that collects the values of each key per sliding window, and writes a window when it closes."""

    source: str
    sink: str
    changelog: str
    size_ms: int
    grace_ms: int

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads."""
        return (self.source,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """A stage that collects the values of each key per session, and writes a session when it closes."""

    source: str
    sink: str
    changelog: str
    gap_ms: int
    grace_ms: int

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads."""
        return (self.source,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A stage that joins two streams whose elements lie near each other in time.

    :param left: (topic, size, grace) of the left stream, milliseconds.
    :param right: of the right one.
    :param kind: which elements without partner are written, too.
    """

    left: tuple[str, int, int]
    right: tuple[str, int, int]
    sink: str
    kind: Literal["join", "left_join", "outer_join"]

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads."""
        return (self.left[0], self.right[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoin:
    """A stage that joins each record of a stream with the newest one of its key in a table, or with none.

    :param changelog: holds the table.
    """

    stream: str
    table: str
    sink: str
    changelog: str

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads."""
        return (self.stream, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionsJoin:
    """A stage that joins each record of a stream with the version of its key that a table had at its time.

    :param history_ms: how far the table's versions reach back.
    """

    stream: str
    table: str
    sink: str
    history_ms: int

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads."""
        return (self.stream, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalJoin:
    """A stage that joins each record of a stream with the row that it names in a table that every task sees
    whole, as it was when the run began.

    :param names: value -> the key of the row.
    """

    stream: str
    table: str
    sink: str
    names: Callable[[str], str]

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads."""
        return (self.stream,)


#: Keys and values of a table.
Rows = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Tables of tables, in one subtopology or several, which leave a table in their sink. What they write to
    each other, and on the way to their last results, is not worked out.

    :param sources: topics that are read as tables.
    :param rows: what the tables of the sources hold -> what that of the sink holds, by topic and key.
    :param repeatable: whether at_least_once loses none of these rows: what comes twice is not added twice.
    """

    sources: tuple[str, ...]
    sink: str
    rows: Callable[[Mapping[str, Rows]], Rows]
    repeatable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink:
    """A stage whose results are rows of a table of a lakehouse.

    :param of: makes the results.
    :param table: name of the table.
    :param row: a result -> the row that it is.
    """

    of: Copy | Fold
    table: str
    row: Callable[[Result], tuple[Any, ...]]

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads."""
        return self.of.sources

    @property
    def sink(self) -> str:
        """The name under which rows are counted."""
        return f"table:{self.table}"


#: How long changelogs of stores in RocksDB keep tombstones: so short that some local files are too old.
DELETE_RETENTION_MS = 40_000


def store_spec(storage: Storage) -> StoreSpec:
    """Return the spec of the key-value store of an application."""
    return StoreSpec(
        name="s",
        key_serde=serdes.string(),
        value_serde=serdes.string(),
        storage=storage,
        changelog_configs=_configs(storage),
    )


def versioned_store_spec(storage: Storage, history_ms: int) -> VersionedStoreSpec:
    """Return the spec of the store of an application, for one with versions."""
    return VersionedStoreSpec(
        name="s",
        key_serde=serdes.string(),
        value_serde=serdes.string(),
        storage=storage,
        changelog_configs=_configs(storage),
        history_ms=history_ms,
    )


def _configs(storage: Storage) -> dict[str, str]:
    return {"delete.retention.ms": str(DELETE_RETENTION_MS)} if storage == "rocksdb" else {}


#: Those whose results the times of records decide, or what earlier runs left.
_Timed = Windows | SlidingWindows | Sessions | Join | TableJoin | VersionsJoin | GlobalJoin | Tables
Stage = Copy | Fold | FoldsAtOnce | TableSink | _Timed


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """One topology with its oracle.

    :param build: makes the topology of steps, which are plain operators or calls.
    :param inputs: topics that producers write.
    :param through: intermediate topics that are the user's own, so that outsiders may write them, too.
    :param subtopologies: (sources, intermediate topics written) of each.
    :param joined: topics of equal partition counts.
    :param tables: inputs in which a record may have no value.
    :param has_stores: whether it has key-value stores, which may lie in RocksDB.
    """

    name: str
    build: Callable[[Steps], Topology]
    inputs: tuple[str, ...]
    through: tuple[str, ...]
    stages: tuple[Stage, ...]
    subtopologies: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    joined: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    has_stores: bool = False

    @property
    def timed(self) -> bool:
        """Whether its results depend on the times of records, or on what earlier runs left."""
        return any(
            isinstance(stage, _Timed) or (isinstance(stage, Fold) and stage.beside) for stage in self.stages
        )

    @property
    def waits_for_points(self) -> bool:
        """Whether results wait for commit points."""
        return any(isinstance(stage, Fold | TableJoin | Windows | Sessions) for stage in self.stages)

    @property
    def has_tables_of_tables(self) -> bool:
        """Whether it has stages that are known by their tables only."""
        return any(isinstance(stage, Tables) for stage in self.stages)

    @property
    def is_repeatable(self) -> bool:
        """Whether at_least_once promises anything of its results that can be looked at."""
        return all(stage.repeatable for stage in self.stages if isinstance(stage, Tables))

    @property
    def lands(self) -> bool:
        """Whether it writes to tables of a lakehouse."""
        return any(isinstance(stage, TableSink) for stage in self.stages)

    @property
    def dead_letters(self) -> bool:
        """Whether some records become dead letters."""
        return any(isinstance(stage, Copy) and stage.fails is not nothing_fails for stage in self.stages)
