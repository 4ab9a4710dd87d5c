"""Runs a user's processor as a node whose calls run side by side.

Rule: a task has one instance, which all its calls share. A call buffers its results (``output_buffer.py``);
the node forwards them when the record has its turn, on the task's thread, with the record's own context.
``init`` and ``close`` run between records, and forward at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.calls import CallOptions, CallSpec
from airflow_kstreams.streams.graph.operator_traits import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, ProcessorServices
from airflow_kstreams.streams.hints.function_checks import answered
from airflow_kstreams.streams.processor.async_context import AsyncProcessorContext
from airflow_kstreams.streams.processor.async_processor import AsyncProcessor, AsyncProcessorDef
from airflow_kstreams.streams.processor.definitions import (
    check_async_processor_class,
    check_processor_class,
    made,
)
from airflow_kstreams.streams.processor.output_buffer import (
    CURRENT,
    CallFacts,
    OutputBuffer,
    UnbufferedOutput,
)
from airflow_kstreams.streams.processor.processor import Processor, ProcessorDef, ProcessorRecord
from airflow_kstreams.streams.processor.processor_outputs import ProcessorOutput, ProcessorOutputs


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingProcessorOperator:
    """Makes a processor for the task, and calls it for each record.

    :param definition: makes a new processor, a plain one if the calls are implicit.
    :param calls: options of the calls.
    """

    definition: AsyncProcessorDef | ProcessorDef
    calls: CallOptions

    type: ClassVar[str] = "processor_async"

    @property
    def traits(self) -> OperatorTraits:
        """The operator's traits for the engine."""
        return OperatorTraits(calls=self.calls, stores_of_user="all")

    def bind(self, forward: Forward, context: ProcessorServices, children: dict[str, Forward]) -> Forward:
        """Make the processor and the closure that calls it.

        :raises TopologyError: the definition made another object than such a processor.
        """
        options = self.calls
        base = Processor if options.implicit else AsyncProcessor
        processor = made(self.definition, base, context.task_id, context.node)
        what = f"processor {context.node!r}"
        if options.implicit:
            check_processor_class(type(processor), what)
        else:
            check_async_processor_class(type(processor), what, threads=options.threads)
        outputs = ProcessorOutputs(context, children)
        has_resource = options.resource is not None
        about = AsyncProcessorContext(context, forward, outputs, has_resource=has_resource)

        def init(_node: str = context.node) -> None:
            _at_once(outputs, lambda: processor.init(about))

        def close(_node: str = context.node) -> None:
            _at_once(outputs, processor.close)

        context.on_open(init)
        context.on_close(close)
        calling = _on_thread if options.threads else _on_loop
        spec = CallSpec(
            function=calling(outputs, processor.process),
            arguments=_both,
            options=options,
            hands_on=frozenset(),
            buffers_output=True,
        )
        write = outputs.write

        def give(key: Any, value: Any, answer: Sequence[ProcessorOutput]) -> None:
            for output in answer:
                write(output)

        return context.calls(spec, give)


def _both(key: Any, value: Any) -> tuple[Any, Any]:
    return key, value


def _at_once(outputs: ProcessorOutputs, step: Callable[[], object]) -> None:
    before = CURRENT.set(UnbufferedOutput(outputs))
    try:
        step()
    finally:
        CURRENT.reset(before)


def _on_loop(outputs: ProcessorOutputs, process: Callable[[ProcessorRecord], Any]) -> Callable[..., Any]:
    async def call(
        key: Any, value: Any, *, context: CallFacts, resource: Any = None
    ) -> Sequence[ProcessorOutput]:
        # Each call is a task on the loop, with its own context variables.
        buffer = OutputBuffer(outputs, context, resource)
        CURRENT.set(buffer)
        try:
            answered(await process(ProcessorRecord(key, value, context.timestamp_ms, context.headers)))
        finally:
            output = buffer.end()
        return output

    return call


def _on_thread(outputs: ProcessorOutputs, process: Callable[[ProcessorRecord], Any]) -> Callable[..., Any]:
    def call(key: Any, value: Any, *, context: CallFacts, resource: Any = None) -> Sequence[ProcessorOutput]:
        buffer = OutputBuffer(outputs, context, resource)
        before = CURRENT.set(buffer)
        try:
            answered(process(ProcessorRecord(key, value, context.timestamp_ms, context.headers)))
        finally:
            output = buffer.end()
            CURRENT.reset(before)
        return output

    return call
