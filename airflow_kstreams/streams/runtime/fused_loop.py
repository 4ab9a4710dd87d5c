"""The loop of a source as one function: decode, every operator that can be written as code, encode, produce.

Rule: the loop gives what :func:`~.source_loop.stepping_loop` over the nodes' closures gives, byte for byte
and in the same order, and fails at the same record and node. It is made for tasks that need neither stream
time nor commit requests nor error handlers; every other task has the stepping loop.

What it saves, per record: a call for each node; writing the record into the task's record context, unless a
node that runs as a closure reads it there; encoding a key or value again that was read in the very same
bytes. What it never saves is decoding: a record that cannot be decoded fails, whoever would have used it.

Errors: the loop's argument ``_node`` tells from the line of the text at which node it was; the record context
is set on the way out.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_kstreams.streams.runtime.loop_code import Inlining, TaskLoopCode
from airflow_kstreams.streams.runtime.record_context import TaskRecordContext
from airflow_kstreams.streams.runtime.source_loop import RunBatch
from airflow_kstreams.streams.topology.nodes import Forward, SourceNode


def fused_loop(
    node: SourceNode, children: Mapping[str, Forward], context: TaskRecordContext, inlining: Inlining
) -> RunBatch:
    """Make the loop of a task that needs neither stream time nor processors nor error handlers.

    :param children: of the source, by name.
    :param inlining: every node of the task is bound by now.
    """
    code = TaskLoopCode(
        inlining, node.name, children, timestamp_ms="timestamp_ms", headers="record.headers()"
    )
    held = code.name(context, "context")
    with code.block("def run_batch(records, timestamps_ms, stream_times_ms, _node=_node_of_line)"):
        code.line(f"record, timestamp_ms = {held}.record, {held}.timestamp_ms")
        with code.counted():
            with code.block("try"), code.block("for record, timestamp_ms in zip(records, timestamps_ms)"):
                code.line_for_closures(f"{held}.record, {held}.timestamp_ms = record, timestamp_ms")
                code.line("key_bytes = record.key()")
                code.line("value_bytes = record.value()")
                key = code.deserialized("key_bytes", node.key_serde, "key")
                value = code.deserialized("value_bytes", node.value_serde, "value")
                code.forward(key, value)
            with code.block("finally"):
                code.line(f"{held}.record, {held}.timestamp_ms = record, timestamp_ms")
        code.line("return len(records)")
    run_batch: RunBatch = code.function("run_batch")
    return run_batch
