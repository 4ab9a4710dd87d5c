"""Runs a user's processor as a node: record by record, or with calls that run side by side.

Rule of calls side by side: a task has one instance of the processor, which all its calls share. A call
buffers its results (``processor_outputs.py``); the node forwards them when the record has its turn, on the
task's thread, with the record's own context. ``init`` and ``close`` run between records, and forward at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_kstreams.streams.graph.calls import CallOptions, CallSpec
from airflow_kstreams.streams.graph.nodes import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, ProcessorServices
from airflow_kstreams.streams.hints.function_checks import answered
from airflow_kstreams.streams.processor.async_context import AsyncProcessorContext
from airflow_kstreams.streams.processor.context import ProcessorContext
from airflow_kstreams.streams.processor.definitions import (
    check_async_processor_class,
    check_processor_class,
    class_of,
    fits_threads,
    made,
)
from airflow_kstreams.streams.processor.processor import (
    AsyncProcessor,
    AsyncProcessorDef,
    FixedKey,
    Processor,
    ProcessorDef,
    ProcessorRecord,
)
from airflow_kstreams.streams.processor.processor_outputs import (
    CURRENT,
    CallFacts,
    OutputBuffer,
    ProcessorOutput,
    ProcessorOutputs,
    UnbufferedOutput,
)
from airflow_kstreams.streams.state.stores.expiring_store import bind_expiry


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorOperator:
    """Makes a processor for the task, and passes it each key and value as a record.

    :param definition: class or function that makes a new processor.
    :param expires: names of the window and session stores whose entries expire by this node's stream time.
    :param keeps_keys: True if its results must have the key of the processed record. It then runs on the
        task's own thread.
    """

    definition: ProcessorDef
    expires: tuple[str, ...] = ()
    keeps_keys: bool = False

    @property
    def type(self) -> str:
        """Kind of node."""
        return "fixed_key_processor" if self.keeps_keys else "processor"

    @property
    def traits(self) -> OperatorTraits:
        """The operator's traits for the engine."""
        return OperatorTraits(
            on_threads=self._calling,
            asks_for_commits=not fits_threads(class_of(self.definition)),
            free_times=True,
            stores_of_user="all",
        )

    def _calling(self, calls: CallOptions) -> CallingProcessorOperator | None:
        """Return the operator whose calls run on threads; None if the processor does not declare that it is
        fit for them. A definition that is no class is called once to find that out.
        """
        if self.keeps_keys or not fits_threads(class_of(self.definition) or type(self.definition())):
            return None
        return CallingProcessorOperator(definition=self.definition, calls=calls)

    def bind(self, forward: Forward, context: ProcessorServices, children: dict[str, Forward]) -> Forward:
        """Make the processor and the closure that feeds it.

        :raises TopologyError: the definition made another object than a processor.
        """
        processor: Processor = made(self.definition, Processor, context.task_id, context.node)
        check_processor_class(type(processor), f"processor {context.node!r}")
        for name in self.expires:
            bind_expiry(context, context.store(name))
        overridden = type(processor).punctuate is not Processor.punctuate
        punctuate = processor.punctuate if overridden else None
        stateless = fits_threads(type(processor))
        fixed = FixedKey(context) if self.keeps_keys else None
        if fixed is not None:
            forward = fixed.kept_by(forward)
            children = {name: fixed.kept_by(child) for name, child in children.items()}
        processor_context = ProcessorContext(context, forward, children, punctuate, stateless=stateless)
        if self.traits.asks_for_commits:
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

        return run if fixed is None else fixed.processing(run, context.node)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingProcessorOperator:
    """Makes a processor for the task, and calls it for each record.

    :param definition: class or function that makes a new processor, a plain one if the calls are implicit.
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
