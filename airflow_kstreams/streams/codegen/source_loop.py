"""The loop of a source as one function: decode, every operator that can be written as code, encode, produce.

Every task has this loop, with the lines that it needs: stream time, a look at requests for commits, records
that come decoded because their timestamps lie in their values. Where records of several topics alternate, the
sources share a loop, which finds each record's lines by its topic: to enter and leave a loop costs more than
a record. Sources share a loop only where nothing goes by stream time, no commit is asked for, no record comes
decoded, and there is one stage.

Rule: the loop gives what calling the nodes' closures for each record gives, byte for byte and in the same
order, and fails at the same record and node.

What it saves, per record: a call for each node; writing the record into the task's record context, unless a
node that runs as a closure reads it there; encoding a key or value again that was read in the very same
bytes. What it never saves is decoding: a record that cannot be decoded fails, even if no node would have
used it.

Errors: the loop's argument ``_node`` gives, for the line of the text, the node it was at; the record context
is set on the way out, and before a handler is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol

from airflow_kstreams.streams.codegen.loop_code import Inlining, TaskLoopCode
from airflow_kstreams.streams.graph.nodes import SourceNode
from airflow_kstreams.streams.graph.services import Forward
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.records.error_handling import ErrorHandling
from airflow_kstreams.streams.records.stream_clock import StreamClock, TopicClock
from airflow_kstreams.streams.records.timestamp_reading import ReadRecord, as_consumed

#: Runs records with their timestamps and stream times, and returns how many of them it ran: all, unless one
#: asked for a commit.
RunBatch = Callable[[Sequence[Record], Sequence[int], Sequence[int]], int]
#: Runs records with their timestamps and topics.
RunMixed = Callable[[Sequence[Record], Sequence[int], Sequence[str]], int]

#: A source, and its children by name.
Source = tuple[SourceNode, Mapping[str, Forward]]


class Time(NamedTuple):
    """The clocks that the loop of a task with stream time moves.

    :param clock: of the task.
    :param topic_clock: of the topic.
    """

    clock: StreamClock
    topic_clock: TopicClock


class CommitRequests(Protocol):
    """Says whether user code asked for a commit, and at which node."""

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

    :param inlining: every node of the task is bound by now.
    :param time: None if nothing in the task goes by stream time.
    :param requests: the loop stops behind a record that asked for a commit; None if none of the task does.
    :param count_undated: counts records that a timestamp extractor skips; None unless records come decoded,
        as :class:`ReadRecord`.
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

    :param sources: by real topic, one or more.
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
    """Write a loop over records; what is written meanwhile is its body."""
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
    """Write how stream time goes on with a record; what is written meanwhile takes the record."""
    clock = code.name(time.topic_clock, "clock")
    with code.block(f"if time_ms > {clock}.time_ms"):
        with code.block(f"if time_ms >= {clock}.due_ms"):
            _let_pass(code, f"{code.name(time.clock.pass_time, 'pass_time')}({clock}, time_ms)")
        with code.block("else"):
            code.line(f"{clock}.time_ms = time_ms")
    yield
    with code.block(f"if {clock}.time_ms >= {clock}.due_ms"):
        _let_pass(code, f"{code.name(time.clock.fire, 'fire')}()")


def _let_pass(code: TaskLoopCode, call: str) -> None:
    """Write a call in which timers call back; an error of theirs comes of no record."""
    code.place()
    with code.block("try"):
        code.line(call)
    with code.block("except BaseException"):
        code.line("record, timestamp_ms = context.record, context.timestamp_ms")
        code.line("raise")


def _run(
    code: TaskLoopCode,
    node: SourceNode,
    errors: ErrorHandling,
    count_undated: Callable[[], None] | None = None,
) -> None:
    """Write what is done with a record: how it is decoded, and what becomes of it."""
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

    :raises Exception: whatever kept it from being decoded.
    """
    if record.error is not None:
        raise record.error
    return record.key, record.value
