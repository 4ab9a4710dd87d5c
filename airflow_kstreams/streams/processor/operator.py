"""Runs a user's processor as a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_kstreams.streams.graph.calls import CallOptions
from airflow_kstreams.streams.graph.operator_traits import OperatorTraits
from airflow_kstreams.streams.graph.services import Forward, ProcessorServices
from airflow_kstreams.streams.processor.calling_operator import CallingProcessorOperator
from airflow_kstreams.streams.processor.context import ProcessorContext
from airflow_kstreams.streams.processor.definitions import (
    check_processor_class,
    class_of,
    fits_threads,
    made,
)
from airflow_kstreams.streams.processor.fixed_key import FixedKey
from airflow_kstreams.streams.processor.processor import Processor, ProcessorDef, ProcessorRecord
from airflow_kstreams.streams.state.stores.expiring_store import bind_expiry


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorOperator:
    """Makes a processor for the task, and passes it each key and value as a record.

    :param definition: makes a new processor.
    :param expires: names of the window and session stores whose entries expire by this node's stream time.
    :param keeps_keys: whether its results must have the key of the processed record. It then runs on the
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
        fit for them. A definition that is no class is asked for one to see.
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
