"""Makes the loop of a source as one function: decode, run every operator that can be written as code, encode
at the sinks, produce.

Every task has this loop, with the lines that it needs: stream time, a check for requests for commits, records
that come decoded because their timestamps lie in their values. Where records of several topics alternate, the
sources share a loop, which finds each record's lines by its topic: to enter and leave a loop costs more than
a record. Sources share a loop only where no node goes by stream time, no commit is asked for, no record comes
decoded, and there is one stage.

Rule: the loop gives the same results as calls of the nodes' closures for each record, byte for byte and in
the same order, and fails at the same record and node.

The loop saves, per record: a call for each node; writing the record into the task's record context, unless a
node that runs as a closure reads it there; encoding a key or value again that was read in the very same
bytes. It never saves decoding: a record that cannot be decoded fails, even if no node would have used it.

Errors: the loop's argument ``_node`` gives the node that wrote a line of the text; the record context is set
on the way out, and before a handler is called.

A sink chooses the partition of each record. In a topic that has not grown a key lies where Java's partitioner
puts it, by all of its bytes or, for a windowed key, by those of the key alone; in one that has grown, where
linear hashing puts it by the same bytes. Where the client would choose the same partition, the choice is left
to the client, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol

from airflow_kstreams.streams.codegen.loop_code import Inlining, TaskLoopCode
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.graph.nodes import Partitioner, SinkNode, SourceNode
from airflow_kstreams.streams.graph.services import Encoding, Forward, LoopCode, WriteCode
from airflow_kstreams.streams.hints.hidden_values import UnfitResultError
from airflow_kstreams.streams.partitioning.linear_hashing import ANY_PARTITION, places_by_memory
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.records.dead_letter_format import Produce
from airflow_kstreams.streams.records.error_handling import ErrorHandling
from airflow_kstreams.streams.records.stream_clock import StreamClock, TopicClock
from airflow_kstreams.streams.records.timestamp_reading import ReadRecord, as_consumed
from airflow_kstreams.streams.runtime.task_environment import TaskEnvironment

#: Runs records with their timestamps and stream times, and returns the number that it ran: all, unless one
#: asked for a commit.
RunBatch = Callable[[Sequence[Record], Sequence[int], Sequence[int]], int]
#: Runs records with their timestamps and topics.
RunMixed = Callable[[Sequence[Record], Sequence[int], Sequence[str]], int]
#: (source, child name -> its closure).
Source = tuple[SourceNode, Mapping[str, Forward]]


class Time(NamedTuple):
    """The clocks that the loop of a task with stream time moves.

    :param clock: stream clock of the task.
    :param topic_clock: clock of the source's topic.
    """

    clock: StreamClock
    topic_clock: TopicClock


class CommitRequests(Protocol):
    """The request of user code for a commit, and the node at which it came."""

    commit_requested: bool
    commit_asked_by: str


def source_loop(
    source: Source,
    errors: ErrorHandling,
    inlining: Inlining,
    *,
    time: Time | None = None,
    requests: CommitRequests | None = None,
    count_undated: Callable[[], None] | None = None,
) -> RunBatch:
    """Make the loop of a source.

    :param source: the source with its children.
    :param errors: the task's error handlers.
    :param inlining: the lines of the task's nodes, which are all bound.
    :param time: the clocks to move; None if no node of the task goes by stream time.
    :param requests: the requests for commits: the loop stops behind a record that made one; None if no node
        of the task makes any.
    :param count_undated: function that counts a record which a timestamp extractor skips; None unless records
        come decoded, as :class:`ReadRecord`.
    """
    node, children = source
    code = _code(node, children, inlining)
    names, rows = ["record", "timestamp_ms"], ["records", "timestamps_ms"]
    if time is not None:
        names.append("time_ms")
        rows.append("stream_times_ms")
    if count_undated is not None:
        names[0] = "ahead"
    with _each(code, "stream_times_ms", f"{', '.join(names)} in zip({', '.join(rows)})", requests):
        if count_undated is not None:
            code.line("record = ahead.raw")
        with nullcontext() if time is None else _timed(code, time):
            _run(code, node, errors, count_undated)
    run_batch: RunBatch = code.function("run_batch")
    return run_batch


def mixed_loop(sources: Mapping[str, Source], errors: ErrorHandling, inlining: Inlining) -> RunMixed:
    """Make the loop that several sources share.

    :param sources: real name of a topic -> its source with children; one or more.
    """
    code = _code(*next(iter(sources.values())), inlining)
    word = "if"
    with _each(code, "topics", "record, timestamp_ms, topic in zip(records, timestamps_ms, topics)"):
        for topic, (node, children) in sources.items():
            code.enter(node.name, children)
            with code.block(f"{word} topic == {code.name(topic, 'topic')}"):
                _run(code, node, errors)
            word = "elif"
    run_mixed: RunMixed = code.function("run_batch")
    return run_mixed


def _code(node: SourceNode, children: Mapping[str, Forward], inlining: Inlining) -> TaskLoopCode:
    place = {"record": "record", "timestamp_ms": "timestamp_ms"}
    return TaskLoopCode(inlining, node.name, children, place, headers="record.headers()")


@contextmanager
def _each(
    code: TaskLoopCode, argument: str, head: str, requests: CommitRequests | None = None
) -> Iterator[None]:
    """Write a loop over records; the lines written in the ``with`` block are its body."""
    ran = "len(records)"
    with code.block(f"def run_batch(records, timestamps_ms, {argument}, _node=_node_of_line)"):
        code.line("record, timestamp_ms = context.record, context.timestamp_ms")
        if requests is not None:
            ran = code.variable("ran")
            code.line(f"{ran} = 0")
        with code.counted():
            with code.block("try"), code.block(f"for {head}"):
                if requests is None:
                    yield
                else:
                    code.line(f"{ran} += 1")
                    yield
                    with code.block(f"if {code.name(requests, 'requests')}.commit_requested"):
                        code.line("break")
            with code.block("finally"):
                code.place()
        code.line(f"return {ran}")


@contextmanager
def _timed(code: TaskLoopCode, time: Time) -> Iterator[None]:
    """Write the lines that move stream time with a record; the lines written in the ``with`` block process
    the record.
    """
    clock = code.name(time.topic_clock, "clock")
    with code.block(f"if time_ms > {clock}.time_ms"):
        with code.block(f"if time_ms >= {clock}.due_ms"):
            # Timers call back; an error of theirs belongs to no record.
            code.call_apart(f"{code.name(time.clock.pass_time, 'pass_time')}({clock}, time_ms)")
        with code.block("else"):
            code.line(f"{clock}.time_ms = time_ms")
    yield
    with code.block(f"if {clock}.time_ms >= {clock}.due_ms"):
        code.call_apart(f"{code.name(time.clock.fire, 'fire')}()")


def _run(
    code: TaskLoopCode,
    node: SourceNode,
    errors: ErrorHandling,
    count_undated: Callable[[], None] | None = None,
) -> None:
    """Write the lines that decode a record and process it."""
    code.place(for_closures=True)
    with code.block("try"):
        if count_undated is None:
            code.line("key_bytes = record.key()")
            code.line("value_bytes = record.value()")
            key = code.deserialized("key_bytes", node.key_serde, "key")
            value = code.deserialized("value_bytes", node.value_serde, "value")
        else:
            key, value = code.variable("key"), code.variable("value")
            code.line(f"{key}, {value} = {code.name(decoded_ahead, 'decoded_ahead')}(ahead)")
    with code.block("except Exception as error"):
        code.line(f"record = {code.name(as_consumed, 'as_consumed')}(record)")
        code.place()
        code.line(f"{code.name(errors.undecodable, 'undecodable')}(error, {code.name(node.name, 'node')})")
    with code.block("else"):
        if count_undated is None:
            code.forward(key, value)
            return
        with code.block("if ahead.skipped"):
            code.line(f"{code.name(count_undated, 'count_undated')}()")
        with code.block("else"):
            code.forward(key, value)


def decoded_ahead(record: ReadRecord) -> tuple[Any, Any]:
    """Return key and value of a record that came decoded.

    :raises Exception: the error of decoding it.
    """
    if record.error is not None:
        raise record.error
    return record.key, record.value


def sink_code(node: SinkNode, topic: str, *, produce: Produce, places: KeyPlaces) -> WriteCode:
    """Return the function that writes a sink's lines; they count the records that they send.

    :param node: the sink, with the serdes of its topic.
    :param topic: the topic's real name.
    :param produce: function that sends one record.
    :param places: the partitions of keys.
    """
    partition_bytes = node.key_serde.partition_bytes
    by_object = None if partition_bytes is None else _of_part(partition_bytes, places.of(topic))
    by_user = None if node.partitioner is None else _by_user(node.partitioner, topic, places)
    by_bytes = None if by_object or not places.has_grown(topic) else places.of(topic)

    key_encoding = Encoding("key", topic, node.key_serde)
    value_encoding = Encoding("value", topic, node.value_serde)

    def write(code: LoopCode, key: str, value: str) -> None:
        encodes_key = (key, key_encoding)
        key_bytes, partition = code.serialized(key, node.key_serde), str(ANY_PARTITION)
        if by_object is not None:
            partition = f"{ANY_PARTITION} if {key} is None else {code.name(by_object, 'partition_of')}({key})"
        elif by_bytes is not None:
            made = code.variable("key_bytes")
            code.line(f"{made} = {key_bytes}", encodes_key)
            partition = (
                f"{ANY_PARTITION} if {made} is None else {code.name(by_bytes, 'partition_of')}({made})"
            )
            key_bytes = made
        # A line for each argument: the line of an error tells the argument that failed.
        code.line(f"{code.name(produce, 'produce')}({code.name(topic, 'topic')},")
        code.line(f"{code.serialized(value, node.value_serde)},", (value, value_encoding))
        code.line(f"{key_bytes},", encodes_key)
        if by_user is not None:
            code.line(f"{code.name(by_user, 'partition_for')}({key}, {value},")
            partition += ")"
        code.line(f"{partition},", None if by_object is None else encodes_key)
        code.line(f"{code.timestamp_ms}, {code.headers})")
        code.count_written(topic)

    return write


def _of_part(partition_bytes: Callable[[Any], bytes], place: Callable[[bytes], int]) -> Callable[[Any], int]:
    return lambda key: place(partition_bytes(key))


def _by_user(partitioner: Partitioner, topic: str, places: KeyPlaces) -> Callable[[Any, Any, int], int]:
    """Return the function that gives the partition of a key and a value: the user partitioner's answer, or
    its third argument if that is None.
    """

    def partition_for(key: Any, value: Any, otherwise: int) -> int:
        count = places.count(topic)
        partition = partitioner(topic, key, value, count)
        if partition is None:
            return otherwise
        if type(partition) is not int or not 0 <= partition < count:
            found = "another number" if type(partition) is int else type(partition).__name__
            raise UnfitResultError(
                f"the partitioner of {topic} returned {found}, expected one of its "
                f"{counted(count, 'partition')}, 0 to {count - 1}, or None"
            )
        return partition

    return partition_for


class KeyPlaces:
    """The partitions of one task's keys, by real names of topics.

    :param environment: the partition counts of topics, now and before they grew.
    """

    __slots__ = ("_initial", "_partition_count", "_places")

    def __init__(self, environment: TaskEnvironment) -> None:
        self._initial = environment.placements
        self._partition_count = environment.partition_count
        self._places: dict[str, Callable[[bytes], int]] = {}

    def has_grown(self, topic: str) -> bool:
        """Return True if a topic has grown, so that the client does not know the partitions of its keys."""
        return topic in self._initial

    def count(self, topic: str) -> int:
        """Return the number of a topic's partitions."""
        return self._partition_count(topic)

    def of(self, topic: str) -> Callable[[bytes], int]:
        """Return the function that gives the partition to which the bytes of a key belong."""
        place = self._places.get(topic)
        if place is None:
            place = self._places[topic] = self._placing(topic)
        return place

    def partition(self, topic: str, key: bytes | None, placed_by: bytes | None) -> int:
        """Return the partition to which to send a record.

        :param placed_by: bytes that decide the partition; None for those of the key.
        :return: number of the partition; -1 to leave the choice to the client.
        """
        data = key if placed_by is None and topic in self._initial else placed_by
        return ANY_PARTITION if data is None else self.of(topic)(data)

    def _placing(self, topic: str) -> Callable[[bytes], int]:
        partition_count, initial = self._partition_count, self._initial.get(topic)
        placed = places_by_memory()

        def place(data: bytes) -> int:
            count = partition_count(topic)
            return placed(data, initial or count, count)

        return place
