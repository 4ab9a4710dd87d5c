"""What the topologies of the simulation are built from: each step is a plain operator, or calls the service.

A step that only passes records on is left out where nothing calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Literal

from airflow_kstreams.streams import (
    AsyncProcessor,
    AsyncProcessorContext,
    CallContext,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    TopologyBuilder,
)
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.streams.serde import serdes
from tests.simulation.retries import DrawnRetries, Fates
from tests.simulation.service import Session, Visit, service
from tests.simulation.sometimes import sometimes

#: After which calls are given up, in the time of their event loop.
_TIMEOUT_MS = 2_000
_NEVER_SECONDS = 3_600.0
#: Share of the calling nodes that are processors.
_PROCESSORS = 0.25

#: What a call is told of its record.
Asking = CallContext | AsyncProcessorContext
Order = Literal["partition", "key", "unordered"]


def nothing_fails(value: str) -> bool:
    """Say that a value is no dead letter."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingNode:
    """An asynchronous node of a topology.

    :param topics: each record of theirs leads to one call; empty where that cannot be said.
    :param order: of its calls.
    :param fails: whether the call for a value fails.
    :param fates: what becomes of its records, if it calls again.
    :param under: the nodes above it in its task that each record passes, too.
    """

    name: str
    topics: tuple[str, ...]
    order: Order
    fails: Callable[[str], bool] = nothing_fails
    fates: Fates | None = None
    under: tuple[CallingNode, ...] = ()

    @property
    def parks(self) -> bool:
        """Whether it has a retry topic."""
        return self.fates is not None and self.fates.parks

    @property
    def ordinal(self) -> str:
        """The ordinal of its call for a record."""
        above = next((node.ordinal for node in self.under if node.fates is not None), "")
        return f"{above}.0" if above else "0"

    def gives_up(self, place: str) -> bool:
        """Whether the record at a place becomes a dead letter here."""
        return self.fates is not None and self.fates.of(place).gives_up

    def reached_by(self, place: str) -> bool:
        """Whether the record at a place comes here."""
        return not any(node.gives_up(place) for node in self.under)


@dataclass(slots=True)
class Steps:
    """Plain operators.

    :param storage: where key-value stores keep their entries.
    :ivar nodes: those that call.
    """

    storage: Storage = "memory"
    nodes: list[CallingNode] = field(default_factory=list)

    def copied(
        self,
        stream: Any,
        function: Callable[[str], str],
        name: str,
        *,
        of: str = "",
        fails: Callable[[str], bool] = nothing_fails,
        again: bool = False,
    ) -> Any:
        """Replace each value.

        :param name: of the step.
        :param of: topics of which each record comes here once, separated by spaces.
        :param fails: whether the function raises for a value.
        :param again: whether its calls may be made again: what is below goes by the order of each key alone.
        """
        return stream.map_values(function)

    def passed(
        self,
        stream: Any,
        name: str,
        *,
        of: str = "",
        again: bool = False,
        keyed: bool = False,
        under: Sequence[str] = (),
    ) -> Any:
        """Pass records on as they are.

        :param again: as for :meth:`copied`.
        :param keyed: whether what is below goes by the key that it knows to be the records' own.
        :param under: steps above it in the same task that each record passes, the nearest first.
        """
        return stream

    def added(self, builder: TopologyBuilder, function: Callable[[str], str], name: str, parent: str) -> None:
        """Add a processor that replaces each value of a source named as its topic."""
        builder.add_processor(name, partial(_Replacing, function), parent)


@dataclass(slots=True)
class CallingSteps(Steps):
    """Steps most of which call the service.

    :param seed: decides which, and how.
    :param retries: how they call again; None if they do not.
    """

    seed: int = 0
    retries: DrawnRetries | None = None

    def copied(
        self,
        stream: Any,
        function: Callable[[str], str],
        name: str,
        *,
        of: str = "",
        fails: Callable[[str], bool] = nothing_fails,
        again: bool = False,
    ) -> Any:
        """Replace each value, mostly by a call."""
        random = Random(f"{self.seed} step {name}")
        if random.random() < 0.15:
            return stream.map_values(function)
        node = self._node(random, name, of, fails, again=again)
        return self._called(random, stream, function, node)

    def passed(
        self,
        stream: Any,
        name: str,
        *,
        of: str = "",
        again: bool = False,
        keyed: bool = False,
        under: Sequence[str] = (),
    ) -> Any:
        """Pass records on, mostly by a call."""
        random = Random(f"{self.seed} step {name}")
        if random.random() < 0.3:
            return stream
        node = self._node(random, name, of, again=again, under=under)
        return self._called(random, stream, lambda value: value, node, keyed=keyed)

    def _node(
        self,
        random: Random,
        name: str,
        of: str,
        fails: Callable[[str], bool] = nothing_fails,
        *,
        again: bool,
        under: Sequence[str] = (),
    ) -> CallingNode:
        order: Order = random.choice(("partition", "key", "key", "unordered"))
        fates = None
        if again and self.retries is not None:
            fates = self.retries.fates(name, parks=order != "partition", by_record=bool(of))
        node = CallingNode(
            name=name,
            topics=tuple(of.split()),
            order=order,
            fails=fails,
            fates=fates,
            under=tuple(node for above in under for node in self.nodes if node.name == above),
        )
        self.nodes.append(node)
        return node

    def added(self, builder: TopologyBuilder, function: Callable[[str], str], name: str, parent: str) -> None:
        """Add a processor that replaces each value of a source, mostly by a call."""
        random = Random(f"{self.seed} step {name}")
        if random.random() < 0.15:
            Steps.added(self, builder, function, name, parent)
            return
        node = self._node(random, name, parent, again=True)
        body, options = self._options(random, function, node)
        del options["name"]
        if node.fates is not None:
            text = serdes.string()
            options["retry"] = replace(node.fates.policy, key_serde=text, value_serde=text)
        builder.add_processor_async(name, _processors(body, options), parent, **options)

    def _options(
        self, random: Random, function: Callable[[str], str], node: CallingNode
    ) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Draw how a node calls: its function, and its options."""
        threads = random.random() < 0.25
        at_once = random.choice((1, 2, 2, 3, 64))
        body = _on_thread(node, function, at_once) if threads else _on_loop(node, function, at_once)
        return body, {
            "max_in_flight": at_once,
            "order": node.order,
            "timeout_ms": _TIMEOUT_MS,
            "threads": threads,
            "resource": random.choice((None, Session)),
            "retry": None if node.fates is None else node.fates.policy,
            "name": node.name,
        }

    def _called(
        self,
        random: Random,
        stream: Any,
        function: Callable[[str], str],
        node: CallingNode,
        *,
        keyed: bool = False,
    ) -> Any:
        body, options = self._options(random, function, node)
        if not keyed and random.random() < _PROCESSORS:
            return stream.process_async(_processors(body, options), **options)
        if random.random() < 0.3:
            return stream.flat_map_values_async(_listed(body, threads=options["threads"]), **options)
        return stream.map_values_async(body, **options)


def _on_loop(node: CallingNode, function: Callable[[str], str], at_once: int) -> Callable[..., Any]:
    async def call(value: str, *, context: Asking, resource: Session | None = None) -> str:
        asked = service()
        visit = asked.begin(node.name, value, context, at_once=at_once)
        try:
            _refuse_closed(visit, resource)
            await asyncio.sleep(asked.random.random() / 100)
            asked.refuse(visit, node.fates)
            if node.fails(value):
                await _fail(visit)
            asked.take_effect(visit)
            await asyncio.sleep(asked.random.random() / 100)
            _refuse_closed(visit, resource)
            return function(value)
        finally:
            asked.end(visit)

    return call


def _on_thread(node: CallingNode, function: Callable[[str], str], at_once: int) -> Callable[..., Any]:
    def call(value: str, *, context: Asking, resource: Session | None = None) -> str:
        asked = service()
        visit = asked.begin(node.name, value, context, at_once=at_once)
        try:
            _refuse_closed(visit, resource)
            asked.refuse(visit, node.fates)
            if not node.fails(value):
                asked.take_effect(visit)
            return function(value)
        finally:
            asked.end(visit)

    return call


def _listed(call: Callable[..., Any], *, threads: bool) -> Callable[..., Any]:
    if threads:

        def plain(value: str, *, context: Asking, resource: Session | None = None) -> list[str]:
            return [call(value, context=context, resource=resource)]

        return plain

    async def listed(value: str, *, context: Asking, resource: Session | None = None) -> list[str]:
        return [await call(value, context=context, resource=resource)]

    return listed


class _Replacing(Processor):
    def __init__(self, function: Callable[[str], str]) -> None:
        self._function = function

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: ProcessorRecord) -> None:
        self._context.forward(record.key, self._function(record.value))


class _Asking(AsyncProcessor):
    """Forwards what a call gives.

    :param has_resource: whether the call takes it.
    """

    def __init__(self, call: Callable[..., Any], *, has_resource: bool) -> None:
        self._call = call
        self._has_resource = has_resource

    def init(self, context: AsyncProcessorContext) -> None:
        self._context = context

    def _called(self, record: ProcessorRecord) -> Any:
        more = {"resource": self._context.resource} if self._has_resource else {}
        return self._call(record.value, context=self._context, **more)


class _AskingOnLoop(_Asking):
    async def process(self, record: ProcessorRecord) -> None:
        sometimes("a processor called")
        self._context.forward(record.key, await self._called(record))


class _AskingOnThread(_Asking):
    def process(self, record: ProcessorRecord) -> None:
        sometimes("a processor called on a thread")
        self._context.forward(record.key, self._called(record))


def _processors(call: Callable[..., Any], options: Mapping[str, Any]) -> Callable[[], AsyncProcessor]:
    """Return what makes the processors of a node with these options."""
    kind = _AskingOnThread if options["threads"] else _AskingOnLoop
    return partial(kind, call, has_resource=options["resource"] is not None)


async def _fail(visit: Visit) -> None:
    """Fail in one of the ways in which calls do; some take effect all the same."""
    asked = service()
    if asked.random.random() < 0.3:
        asked.take_effect(visit)
    kind = asked.random.choice(("raise", "hang", "swallow", "exit", "cancelled"))
    if kind == "exit":
        raise SystemExit(1)
    if kind == "cancelled":
        raise asyncio.CancelledError
    if kind in ("hang", "swallow"):
        try:
            await asyncio.sleep(_NEVER_SECONDS)
        except asyncio.CancelledError:
            sometimes("a call took too long")
            if kind == "hang":
                raise
            asked.end(visit)  # it is given up, and goes on
            sometimes("a call swallowed its cancellation")
            # It ends with its loop, of which asyncio would complain.
            asyncio.current_task()._log_destroy_pending = False  # type: ignore[union-attr]
            await asyncio.sleep(_NEVER_SECONDS)
    raise ValueError("not this one")


def _refuse_closed(visit: Visit, resource: Session | None) -> None:
    if resource is not None and not resource.is_open:
        service().wrong.append(f"{visit.node}: {visit.key} was given a closed resource")
