"""What is found at the nodes while a sample runs through a topology."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_kstreams.explore.sample import SampleRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A record that a node forwarded, or that a sink wrote.

    :param key: as it was at that moment, whatever became of the object later.
    :param value: likewise.
    :param timestamp_ms: of the result, epoch milliseconds.
    :param topic: of the input record that led here; empty for what processors forward when they start or
        close.
    :param partition: of that input record, -1 for none.
    :param offset: of that input record, -1 for none.
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
    """What went wrong with a record, and where.

    :param origin: the input record, ``topic-partition@offset``.
    :param node: name of the node that failed.
    :param error: what was raised, with its traceback.
    """

    origin: str
    node: str
    error: Exception

    def __str__(self) -> str:
        text = " ".join(str(self.error).split())
        return f"{self.origin} at {self.node}: {type(self.error).__name__}: {text}"


@dataclass(slots=True, kw_only=True)
class NodeCounts:
    """Records at a node.

    :param records_in: that reached it.
    :param records_out: that it forwarded, or wrote.
    :param dropped: that it dropped by rule, e.g. for want of a key.
    :param failed: at which it failed.
    """

    records_in: int = 0
    records_out: int = 0
    dropped: int = 0
    failed: int = 0


Event = Literal["in", "out", "written", "dropped", "failed"]


@dataclass(slots=True, kw_only=True)
class Findings:
    """Collects what the taps see, one input record at a time: all of a step is kept, or nothing of it."""

    counts: dict[str, NodeCounts] = field(default_factory=dict)
    records: dict[str, list[NodeRecord]] = field(default_factory=dict)
    failures: list[RecordFailure] = field(default_factory=list)
    #: What was written to each topic, by its name in the topology.
    topics: dict[str, list[NodeRecord]] = field(default_factory=dict)
    _origin: SampleRecord | None = None
    _step: list[tuple[Event, str, Any]] = field(default_factory=list)

    def add_node(self, node: str) -> None:
        """Make room for a node's findings."""
        self.counts.setdefault(node, NodeCounts())
        self.records.setdefault(node, [])

    def begin(self, origin: SampleRecord | None) -> None:
        """Begin a step; what is seen belongs to this input record."""
        self._origin = origin
        self._step = []

    def keep(self) -> None:
        """Keep what the step showed."""
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
        """Forget what the step showed except what failed: its effects were undone."""
        self._step = [step for step in self._step if step[0] == "failed"]
        self.keep()

    def forget(self) -> None:
        """Forget what the step showed: it was a repetition."""
        self._step = []

    def arrived(self, node: str) -> None:
        """Count a record that reached a node."""
        self._step.append(("in", node, None))

    def dropped(self, node: str) -> None:
        """Count a record that a node dropped by rule."""
        self._step.append(("dropped", node, None))

    def forwarded(self, node: str, key: Any, value: Any, timestamp_ms: int) -> None:
        """Note what a node forwards."""
        self._step.append(("out", node, self._record(key, value, timestamp_ms)))

    def written(self, topic: str, key: Any, value: Any, timestamp_ms: int) -> None:
        """Note what is written to a topic."""
        self._step.append(("written", topic, self._record(key, value, timestamp_ms)))

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
        """Note an error at a node."""
        origin = "(no record)" if self._origin is None else str(self._origin)
        self._step.append(("failed", node, RecordFailure(origin=origin, node=node, error=error)))


def _as_it_is(thing: Any) -> Any:
    """Return a copy: an aggregator may go on changing its aggregate in place."""
    try:
        return copy.deepcopy(thing)
    except Exception:  # what cannot be copied can still be shown
        return repr(thing)
