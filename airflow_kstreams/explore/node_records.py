"""Collects records, counts and errors at the nodes while a sample runs through a topology."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_kstreams.explore.sample import SampleRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A record that a node forwarded, or that a sink wrote.

    :param key: a copy of that moment; later changes of the object do not show.
    :param value: such a copy, too.
    :param timestamp_ms: timestamp of the result, epoch milliseconds.
    :param topic: topic of the input record that led here; empty for records that processors forward when they
        start or close.
    :param partition: partition of that input record, -1 for none.
    :param offset: offset of that input record, -1 for none.
    """

    key: Any
    value: Any
    timestamp_ms: int
    topic: str = ""
    partition: int = -1
    offset: int = -1

    @property
    def origin(self) -> str:
        """The input record that led here, ``topic-partition@offset``."""
        return f"{self.topic}-{self.partition}@{self.offset}" if self.topic else "(no record)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailure:
    """The error of a record at a node.

    :param origin: the input record, ``topic-partition@offset``.
    :param node: name of the node that failed.
    :param error: the error, with its traceback.
    """

    origin: str
    node: str
    error: Exception

    def __str__(self) -> str:
        text = " ".join(str(self.error).split())
        return f"{self.origin} at {self.node}: {type(self.error).__name__}: {text}"


@dataclass(slots=True, kw_only=True)
class NodeCounts:
    """Numbers of records at a node.

    :param records_in: number of records that reached it.
    :param records_out: number of records that it forwarded, or wrote.
    :param dropped: number of records that it dropped by rule, e.g. for lack of a key.
    :param failed: number of records at which it failed.
    """

    records_in: int = 0
    records_out: int = 0
    dropped: int = 0
    failed: int = 0


Event = Literal["in", "out", "written", "dropped", "failed"]


@dataclass(slots=True, kw_only=True)
class Findings:
    """Collects the findings of the taps, one input record at a time: all findings of a step are kept, or
    none.
    """

    counts: dict[str, NodeCounts] = field(default_factory=dict)
    records: dict[str, list[NodeRecord]] = field(default_factory=dict)
    failures: list[RecordFailure] = field(default_factory=list)
    #: Records written to each topic, by its name in the topology, and rows to each table, by its label.
    topics: dict[str, list[NodeRecord]] = field(default_factory=dict)
    _origin: SampleRecord | None = None
    _step: list[tuple[Event, str, Any]] = field(default_factory=list)

    def add_node(self, node: str) -> None:
        """Prepare for a node's findings."""
        self.counts.setdefault(node, NodeCounts())
        self.records.setdefault(node, [])

    def begin(self, origin: SampleRecord | None) -> None:
        """Begin a step, whose findings belong to this input record."""
        self._origin = origin
        self._step = []

    def keep(self) -> None:
        """Keep the findings of the step."""
        for event, place, what in self._step:
            if event == "written":
                self.topics.setdefault(place, []).append(what)
                continue
            counts = self.counts[place]
            match event:
                case "in":
                    counts.records_in += 1
                case "out":
                    counts.records_out += 1
                    self.records[place].append(what)
                case "dropped":
                    counts.dropped += 1
                case "failed":
                    counts.failed += 1
                    self.failures.append(what)
        self._step = []

    def keep_failures_only(self) -> None:
        """Forget the findings of the step except its errors: its effects were undone."""
        self._step = [step for step in self._step if step[0] == "failed"]
        self.keep()

    def forget(self) -> None:
        """Forget the findings of the step, which was a repetition."""
        self._step = []

    def arrived(self, node: str) -> None:
        """Count a record that reached a node."""
        self._step.append(("in", node, None))

    def dropped(self, node: str) -> None:
        """Count a record that a node dropped by rule."""
        self._step.append(("dropped", node, None))

    def forwarded(self, node: str, key: Any, value: Any, timestamp_ms: int) -> None:
        """Add a record that a node forwards."""
        self._step.append(("out", node, self._record(key, value, timestamp_ms)))

    def written(self, place: str, key: Any, value: Any, timestamp_ms: int) -> None:
        """Add a record that is written to a topic, or a row that is written to a table."""
        self._step.append(("written", place, self._record(key, value, timestamp_ms)))

    def _record(self, key: Any, value: Any, timestamp_ms: int) -> NodeRecord:
        origin = self._origin
        return NodeRecord(
            key=_as_it_is(key),
            value=_as_it_is(value),
            timestamp_ms=timestamp_ms,
            topic="" if origin is None else origin.topic,
            partition=-1 if origin is None else origin.partition,
            offset=-1 if origin is None else origin.offset,
        )

    def failed(self, node: str, error: Exception) -> None:
        """Add an error at a node."""
        origin = "(no record)" if self._origin is None else str(self._origin)
        self._step.append(("failed", node, RecordFailure(origin=origin, node=node, error=error)))


def _as_it_is(thing: Any) -> Any:
    """Return a copy: an aggregator may go on changing its aggregate in place."""
    try:
        return copy.deepcopy(thing)
    except Exception:  # an object that cannot be copied can still be shown
        return repr(thing)
