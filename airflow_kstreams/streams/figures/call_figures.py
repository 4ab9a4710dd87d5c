"""Holds the figures of a task's calls and of the threads that run them; see ``calls/measured_caller.py``.

Everything adds up, over attempts and over tasks: sums and histograms exactly, the largest of several is the
largest. Averages over time come from sums: a call that ran for 10 ms adds 10 ms to the calls in flight, and
their average is that sum by the time that the task was open.

At most ``MOST_NODES`` nodes have figures by name, the first ones in topological order, and the others
together. Where two are added up of which one has such others, a node keeps its name only if both name it: no
figure by name lacks a part. A sum with an unknown part is unknown: see ``UNKNOWN``.

Many latencies take few bytes: a histogram whose buckets grow by one factor. Rule: at scale s bucket i holds
latencies of ``2 ** (i / 2 ** s)`` nanoseconds up to the next bucket's. One step down in scale joins
neighbours (i becomes i // 2). A histogram has the largest scale, ``FINEST`` at most, at which no more than
``MOST_BUCKETS`` buckets hold anything.

Invariant: adding up histograms gives, bit for bit, the histogram of all their latencies, in any order and
grouping. For the buckets in use never become more by a step down, nor fewer by adding: so a part
that had to take a coarser scale would have forced it on the whole, too. Sums and maxima are integers, which
add up exactly.

A quantile is the middle of its bucket, so it is off by a factor of ``2 ** (0.5 / 2 ** s)`` at most: 4.4 % at
the finest scale, 19 % two steps below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from airflow_kstreams.streams.figures.record_counts import OTHER_NODES

#: Eight buckets for each doubling.
FINEST = 3
#: What 24 buckets hold at the finest scale: latencies that differ by a factor of eight, or a few such heaps.
MOST_BUCKETS = 24

_PER_DOUBLING = 1 << FINEST
_NS = 1_000_000_000


class Latencies(msgspec.Struct, frozen=True, array_like=True):
    """A histogram of latencies.

    :param total_ns: sum of the latencies, nanoseconds.
    :param max_ns: the largest latency, nanoseconds.
    :param scale: fineness of the buckets, see the module.
    :param buckets: index and count of each bucket in use, one after the other, by index.
    """

    total_ns: int = 0
    max_ns: int = 0
    scale: int = FINEST
    buckets: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """The number of latencies."""
        return sum(self.buckets[1::2])

    @property
    def average_ns(self) -> float | None:
        """The mean; None of none."""
        count = self.count
        return self.total_ns / count if count else None

    def quantile_ns(self, share: float) -> float | None:
        """Return the latency, in nanoseconds, that a share of all do not exceed, as exactly as the scale
        allows; None without latencies.

        :param share: the share, above 0 and up to 1.
        """
        left = math.ceil(share * self.count)
        for index, count in self._counts().items():
            left -= count
            if left <= 0:
                middle: float = 2 ** ((index + 0.5) / 2**self.scale)
                return min(self.max_ns, middle)
        return None

    def __add__(self, other: Latencies) -> Latencies:
        scale = min(self.scale, other.scale)
        counts: dict[int, int] = {}
        for each in (self, other):
            for index, count in each._counts().items():
                at = index >> (each.scale - scale)
                counts[at] = counts.get(at, 0) + count
        return _bounded(self.total_ns + other.total_ns, max(self.max_ns, other.max_ns), scale, counts)

    def _counts(self) -> dict[int, int]:
        return dict(zip(self.buckets[::2], self.buckets[1::2], strict=True))


class LatencyRecorder:
    """Takes latencies one after the other; it needs no more memory than there are buckets at the finest scale
    (some 300 up to an hour).
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._total_ns = self._max_ns = 0

    def record(self, seconds: float, count: int = 1) -> None:
        """Add some latencies by their sum.

        :param seconds: sum of the latencies.
        :param count: number of latencies that share the sum equally; at least one.
        """
        total_ns = max(0, round(seconds * _NS))
        each_ns = total_ns // count
        index = int(math.log2(each_ns) * _PER_DOUBLING) if each_ns else 0
        self._counts[index] = self._counts.get(index, 0) + count
        self._total_ns += total_ns
        self._max_ns = max(self._max_ns, each_ns)

    def record_each(self, seconds: Iterable[float]) -> None:
        """Add several latencies, each by itself."""
        each_ns = [max(0, round(value * _NS)) for value in seconds]
        counts, log2 = self._counts, math.log2
        for value in each_ns:
            index = int(log2(value) * _PER_DOUBLING) if value else 0
            counts[index] = counts.get(index, 0) + 1
        self._total_ns += sum(each_ns)
        self._max_ns = max(self._max_ns, *each_ns, 0)

    def latencies(self) -> Latencies:
        """Return the histogram so far."""
        return _bounded(self._total_ns, self._max_ns, FINEST, self._counts)


def _bounded(total_ns: int, max_ns: int, scale: int, counts: Mapping[int, int]) -> Latencies:
    while len(counts) > MOST_BUCKETS:
        joined: dict[int, int] = {}
        for index, count in counts.items():
            joined[index >> 1] = joined.get(index >> 1, 0) + count
        counts, scale = joined, scale - 1
    flat = tuple(number for index in sorted(counts) for number in (index, counts[index]))
    return Latencies(total_ns, max_ns, scale, flat)


#: How many nodes have figures by name.
MOST_NODES = 8

#: What a thread that runs calls is at: ``RUNNING`` runs one at least, ``IDLE`` none, ``ABANDONED`` one that
#: was given up, and ends with it.
ThreadStateName = Literal["RUNNING", "IDLE", "ABANDONED"]


class ThreadState(msgspec.Struct, frozen=True, kw_only=True):
    """A thread that runs calls of a task.

    :param name: name of the thread.
    :param state: ``RUNNING``, ``IDLE`` or ``ABANDONED``.
    :param event_loop: True for the task's event loop, whose one thread runs many calls.
    :param busy_seconds: an event loop's time on a processor; None where the system does not measure it.
    """

    name: str
    state: ThreadStateName
    event_loop: bool = False
    busy_seconds: float | None = None


class NodeCalls(msgspec.Struct, frozen=True, array_like=True):
    """The calls of one node.

    :param node: name of the node; empty for several, see ``OTHER_NODES``.
    :param latency: latencies of the calls made, from beginning to end.
    :param failed: number of calls that ended with an error, those timed out among them.
    :param timed_out: number of calls given up at ``timeout_ms``.
    :param retried: number of calls made because the one before of their record had failed.
    :param most_in_flight: largest number of calls that ran at the same time.
    :param queued_ns: sum of the times that calls waited for their turn, nanoseconds.
    """

    node: str
    latency: Latencies = Latencies()
    failed: int = 0
    timed_out: int = 0
    retried: int = 0
    most_in_flight: int = 0
    queued_ns: int = 0

    def __add__(self, other: NodeCalls) -> NodeCalls:
        return NodeCalls(
            self.node,
            self.latency + other.latency,
            self.failed + other.failed,
            self.timed_out + other.timed_out,
            self.retried + other.retried,
            max(self.most_in_flight, other.most_in_flight),
            self.queued_ns + other.queued_ns,
        )


class ThreadFigures(msgspec.Struct, frozen=True, array_like=True):
    """The threads that run a task's calls: the event loop, and those of plain functions.

    :param running: number of threads that ran calls when they were counted last.
    :param idle: number of threads that ran none then.
    :param abandoned: number of threads that were given up, and still went on then.
    :param replaced: number of threads that were made in place of others.
    :param open_ns: sum of the lifetimes of threads for plain functions, nanoseconds.
    :param busy_ns: part of it in which they ran calls.
    :param loop_open_ns: lifetime of the event loop, nanoseconds.
    :param loop_busy_ns: part of it on a processor; None where the system does not measure it.
    """

    running: int = 0
    idle: int = 0
    abandoned: int = 0
    replaced: int = 0
    open_ns: int = 0
    busy_ns: int = 0
    loop_open_ns: int = 0
    loop_busy_ns: int | None = 0

    def __add__(self, other: ThreadFigures) -> ThreadFigures:
        one, two = self.loop_busy_ns, other.loop_busy_ns
        return ThreadFigures(
            self.running + other.running,
            self.idle + other.idle,
            self.abandoned + other.abandoned,
            self.replaced + other.replaced,
            self.open_ns + other.open_ns,
            self.busy_ns + other.busy_ns,
            self.loop_open_ns + other.loop_open_ns,
            None if one is None or two is None else one + two,
        )


class CallFigures(msgspec.Struct, frozen=True, array_like=True):
    """The calls of a task, or of several.

    :param nodes: figures of each node, in topological order, those of the other nodes together last.
    :param known: False if there was no room for a part: then the other figures mean nothing.
    :param open_ns: time for which the task was open, by the clock of its calls, nanoseconds.
    :param waiting_ns: sum, over all records, of the time between choice and release, nanoseconds.
    :param most_waiting: largest number of records that were chosen and not released at the same time.
    :param threads: figures of the threads that ran the calls.
    """

    nodes: tuple[NodeCalls, ...] = ()
    known: bool = True
    open_ns: int = 0
    waiting_ns: int = 0
    most_waiting: int = 0
    threads: ThreadFigures = ThreadFigures()

    def __add__(self, other: CallFigures) -> CallFigures:
        if not (self.known and other.known):
            return UNKNOWN
        return CallFigures(
            _joined(self.nodes, other.nodes),
            self.known and other.known,
            self.open_ns + other.open_ns,
            self.waiting_ns + other.waiting_ns,
            max(self.most_waiting, other.most_waiting),
            self.threads + other.threads,
        )

    def of_earlier_attempt(self) -> CallFigures:
        """Return the same without states of threads: they ended with their attempt."""
        ended = msgspec.structs.replace(self.threads, running=0, idle=0, abandoned=0)
        return msgspec.structs.replace(self, threads=ended)

    def first(self, number: int) -> CallFigures:
        """Return the same with only so many nodes by name; the others are added up."""
        named = [each.node for each in self.nodes if each.node != OTHER_NODES]
        return msgspec.structs.replace(self, nodes=_named(self.nodes, named[:number]))

    def shorter(self) -> CallFigures | None:
        """Return the same with half as many nodes by name, or as unknown; None if it is that already."""
        named = sum(each.node != OTHER_NODES for each in self.nodes)
        if named:
            return self.first(named // 2)
        return UNKNOWN if self.nodes else None


#: There were calls, and nothing is known of them.
UNKNOWN = CallFigures(known=False)


def added_calls(one: CallFigures | None, other: CallFigures | None) -> CallFigures | None:
    """Add up the calls of several tasks; None stands for a task that makes no calls."""
    if one is None or other is None:
        return one or other
    return one + other


def _joined(one: tuple[NodeCalls, ...], other: tuple[NodeCalls, ...]) -> tuple[NodeCalls, ...]:
    names, others = [[each.node for each in nodes] for nodes in (one, other)]
    kept = [
        name
        for name in dict.fromkeys((*names, *others))
        if (name in names or OTHER_NODES not in names) and (name in others or OTHER_NODES not in others)
    ]
    return _named((*one, *other), [name for name in kept if name != OTHER_NODES])


def _named(nodes: Iterable[NodeCalls], names: list[str]) -> tuple[NodeCalls, ...]:
    """Add up the calls of nodes with the same name, and those of all other nodes together."""
    found: dict[str, NodeCalls] = {}
    for each in nodes:
        name = each.node if each.node in names else OTHER_NODES
        known = found.get(name, NodeCalls(name))
        found[name] = known + each
    return tuple(found[name] for name in (*names, OTHER_NODES) if name in found)
