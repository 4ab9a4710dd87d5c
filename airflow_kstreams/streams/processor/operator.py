"""Runs a user's processor as a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.nodes import Forward
from airflow_kstreams.streams.graph.services import ProcessorServices
from airflow_kstreams.streams.processor.context import ProcessorContext
from airflow_kstreams.streams.processor.processor import (
    Processor,
    ProcessorDef,
    ProcessorRecord,
    refuse_async,
)
from airflow_kstreams.streams.state.stores.expiring_store import bind_expiry


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorOperator:
    """Makes a processor for the task, wraps each key and value into a record and hands it over.

    :param definition: makes a new processor.
    :param expires: names of the window and session stores whose entries expire by this node's stream time.
    """

    definition: ProcessorDef
    expires: tuple[str, ...] = ()

    type: ClassVar[str] = "processor"

    def bind(self, forward: Forward, context: ProcessorServices, children: dict[str, Forward]) -> Forward:
        """Make the processor and the closure that feeds it.

        :raises TopologyError: the definition made something else than a processor.
        """
        processor = self.definition()
        if not isinstance(processor, Processor):
            raise TopologyError(
                f"task {context.task_id}: the definition of processor {context.node!r} made a "
                f"{type(processor).__name__}, expected a Processor",
                fix="derive the class from airflow_kstreams.streams.Processor",
            )
        refuse_async(type(processor), f"processor {context.node!r}")
        for name in self.expires:
            bind_expiry(context, context.store(name))
        overridden = type(processor).punctuate is not Processor.punctuate
        punctuate = processor.punctuate if overridden else None
        processor_context = ProcessorContext(context, forward, children, punctuate)
        context.allow_commit_requests()

        def init(_node: str = context.node) -> None:
            processor.init(processor_context)

        def close(_node: str = context.node) -> None:
            processor.close()

        context.on_open(init)
        context.on_close(close)
        process = processor.process
        record_context = context.record_context
        headers_of = record_context.headers

        def run(key: Any, value: Any, _node: str = context.node) -> None:
            process(ProcessorRecord(key, value, record_context.timestamp_ms, headers_of() or []))

        return run
