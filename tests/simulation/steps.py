"""What the topologies of the simulation are built from: each step is a plain operator, or calls the service.

A step that only passes records on is left out where nothing calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from airflow_kstreams.streams import CallContext
from airflow_kstreams.streams.graph.store_specs import Storage
from tests.simulation.service import Session, Visit, service
from tests.simulation.sometimes import sometimes

#: After which calls are given up, in the time of their event loop.
_TIMEOUT_MS = 2_000
_NEVER_SECONDS = 3_600.0

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
    """

    name: str
    topics: tuple[str, ...]
    order: Order
    fails: Callable[[str], bool] = nothing_fails


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
    ) -> Any:
        """Replace each value.

        :param name: of the step.
        :param of: topics of which each record comes here once, separated by spaces.
        :param fails: whether the function raises for a value.
        """
        return stream.map_values(function)

    def passed(self, stream: Any, name: str, *, of: str = "") -> Any:
        """Pass records on as they are."""
        return stream


@dataclass(slots=True)
class CallingSteps(Steps):
    """Steps most of which call the service.

    :param seed: decides which, and how.
    """

    seed: int = 0

    def copied(
        self,
        stream: Any,
        function: Callable[[str], str],
        name: str,
        *,
        of: str = "",
        fails: Callable[[str], bool] = nothing_fails,
    ) -> Any:
        """Replace each value, mostly by a call."""
        random = Random(f"{self.seed} step {name}")
        if random.random() < 0.15:
            return stream.map_values(function)
        return self._called(random, stream, function, name, of, fails)

    def passed(self, stream: Any, name: str, *, of: str = "") -> Any:
        """Pass records on, mostly by a call."""
        random = Random(f"{self.seed} step {name}")
        if random.random() < 0.3:
            return stream
        return self._called(random, stream, lambda value: value, name, of, nothing_fails)

    def _called(
        self,
        random: Random,
        stream: Any,
        function: Callable[[str], str],
        name: str,
        of: str,
        fails: Callable[[str], bool],
    ) -> Any:
        order: Order = random.choice(("partition", "key", "key", "unordered"))
        node = CallingNode(name=name, topics=tuple(of.split()), order=order, fails=fails)
        self.nodes.append(node)
        threads = random.random() < 0.25
        at_once = random.choice((1, 2, 2, 3, 64))
        body = _on_thread(node, function, at_once) if threads else _on_loop(node, function, at_once)
        options = {
            "max_in_flight": at_once,
            "order": order,
            "timeout_ms": _TIMEOUT_MS,
            "threads": threads,
            "resource": random.choice((None, Session)),
            "name": name,
        }
        if random.random() < 0.3:
            return stream.flat_map_values_async(_listed(body, threads=threads), **options)
        return stream.map_values_async(body, **options)


def _on_loop(node: CallingNode, function: Callable[[str], str], at_once: int) -> Callable[..., Any]:
    async def call(value: str, *, context: CallContext, resource: Session | None = None) -> str:
        asked = service()
        visit = asked.begin(node.name, value, context, at_once=at_once)
        try:
            _refuse_closed(visit, resource)
            await asyncio.sleep(asked.random.random() / 100)
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
    def call(value: str, *, context: CallContext, resource: Session | None = None) -> str:
        asked = service()
        visit = asked.begin(node.name, value, context, at_once=at_once)
        try:
            _refuse_closed(visit, resource)
            if not node.fails(value):
                asked.take_effect(visit)
            return function(value)
        finally:
            asked.end(visit)

    return call


def _listed(call: Callable[..., Any], *, threads: bool) -> Callable[..., Any]:
    if threads:

        def plain(value: str, *, context: CallContext, resource: Session | None = None) -> list[str]:
            return [call(value, context=context, resource=resource)]

        return plain

    async def listed(value: str, *, context: CallContext, resource: Session | None = None) -> list[str]:
        return [await call(value, context=context, resource=resource)]

    return listed


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
