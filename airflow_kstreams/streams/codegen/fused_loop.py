"""The loop of a source as one function: decode, every operator that can be written as code, encode, produce.

Where records of several topics alternate, the sources share a loop: it finds each record's lines by its
topic, for to enter a loop and to leave it costs more than a record.

Rule: the loop gives what :func:`~.source_loop.stepping_loop` over the nodes' closures gives, byte for byte
and in the same order, and fails at the same record and node. It is made for tasks that need no commit
requests, have one stage, and read no timestamps from values; every other task has the stepping loop. Sources
share a loop only where nothing goes by stream time.

What it saves, per record: a call for each node; writing the record into the task's record context, unless a
node that runs as a closure reads it there; encoding a key or value again that was read in the very same
bytes. What it never saves is decoding: a record that cannot be decoded fails, even if no node would have
used it.

Errors: the loop's argument ``_node`` gives, for the line of the text, the node it was at; the record context
is set on the way out, and before a handler is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from airflow_kstreams.streams.codegen.loop_code import Inlining, TaskLoopCode
from airflow_kstreams.streams.codegen.source_loop import RunBatch
from airflow_kstreams.streams.graph.nodes import SourceNode
from airflow_kstreams.streams.graph.services import Forward
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.streams.records.error_handling import ErrorHandling
from airflow_kstreams.streams.records.stream_clock import StreamClock, TopicClock
from airflow_kstreams.streams.records.timestamp_reading import as_consumed

#: Runs records with their timestamps and topics.
RunMixed = Callable[[Sequence[Record], Sequence[int], Sequence[str]], int]

#: A source, and its children by name.
Source = tuple[SourceNode, Mapping[str, Forward]]


class Time(NamedTuple):
    """What the loop of a task that goes by stream time moves.

    :param clock: of the task.
    :param topic_clock: of the topic.
    """

    clock: StreamClock
    topic_clock: TopicClock


def fused_loop(
    node: SourceNode,
    children: Mapping[str, Forward],
    errors: ErrorHandling,
    inlining: Inlining,
    time: Time | None = None,
) -> RunBatch:
    """Make the loop of a task without commit requests.

    :param children: of the source, by name.
    :param inlining: every node of the task is bound by now.
    :param time: None if nothing in the task goes by stream time.
    """
    code = _code(node, children, inlining)
    if time is None:
        with _each(code, "stream_times_ms", "record, timestamp_ms in zip(records, timestamps_ms)"):
            _run(code, node, errors)
    else:
        each = "record, timestamp_ms, time_ms in zip(records, timestamps_ms, stream_times_ms)"
        with _each(code, "stream_times_ms", each), _timed(code, time):
            _run(code, node, errors)
    run_batch: RunBatch = code.function("run_batch")
    return run_batch


def mixed_loop(sources: Mapping[str, Source], errors: ErrorHandling, inlining: Inlining) -> RunMixed:
    """Make the loop of several sources of such a task.

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
def _each(code: TaskLoopCode, argument: str, head: str) -> Iterator[None]:
    """Write a loop over records; what is written meanwhile is its body."""
    with code.block(f"def run_batch(records, timestamps_ms, {argument}, _node=_node_of_line)"):
        code.line("record, timestamp_ms = context.record, context.timestamp_ms")
        with code.counted():
            with code.block("try"), code.block(f"for {head}"):
                yield
            with code.block("finally"):
                code.place()
        code.line("return len(records)")


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


def _run(code: TaskLoopCode, node: SourceNode, errors: ErrorHandling) -> None:
    """Write what is done with a record: how it is decoded, and what becomes of it."""
    code.place(for_closures=True)
    with code.block("try"):
        code.line("key_bytes = record.key()")
        code.line("value_bytes = record.value()")
        key = code.deserialized("key_bytes", node.key_serde, "key")
        value = code.deserialized("value_bytes", node.value_serde, "value")
    with code.block("except Exception as error"):
        code.line(f"record = {code.name(as_consumed, 'as_consumed')}(record)")
        code.place()
        code.line(f"{code.name(errors.undecodable, 'undecodable')}(error, {code.name(node.name, 'node')})")
    with code.block("else"):
        code.forward(key, value)
