"""A service of the world outside that the functions of asynchronous nodes call: it knows idempotency keys.

It outlives processes, as Kafka does, and takes down who called it with what. A call that it has seen takes no
second effect. What can be judged while a call runs is judged at once; the rest by ``call_checks.py``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Literal

from airflow_kstreams.streams import AsyncProcessorContext, CallContext
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.ports import TopicPartition
from tests.simulation.retries import Fates, Outage
from tests.simulation.sometimes import sometimes
from tests.simulation.world import World
from tests.simulation.world_caller import ATTEMPT


@dataclass(eq=False, slots=True, kw_only=True)
class Visit:
    """A call as the service sees it.

    :param attempt: numbers the attempts of tasks, each of which runs its own calls.
    :param key: idempotency key; empty if no record led to the call.
    :param asked: what the service is asked.
    """

    node: str
    attempt: int
    partition: TopicPartition | None
    offset: int
    key: str
    asked: str
    over: bool = False

    @property
    def place(self) -> str:
        """Where its record lies; what is asked, if no record led to it."""
        return self.asked if self.partition is None else f"{self.partition}@{self.offset}"


@dataclass(slots=True)
class Service:
    """See the module.

    :param random: of how long it takes.
    :ivar effects: idempotency key -> what was asked for, in the order in which effects came.
    :ivar events: begins and ends of calls, in order.
    :ivar wrong: what must not have happened.
    :ivar outage: when it is away.
    """

    world: World
    random: Random
    effects: dict[str, str] = field(default_factory=dict)
    events: list[tuple[Literal["begin", "end"], Visit]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    outage: Outage | None = None
    _failed: Counter[tuple[str, str]] = field(default_factory=Counter)
    _attempts: dict[int, tuple[object, int]] = field(default_factory=dict)
    _running: Counter[tuple[int, str]] = field(default_factory=Counter)
    _keys: Counter[str] = field(default_factory=Counter)

    def begin(
        self, node: str, asked: str, context: CallContext | AsyncProcessorContext, *, at_once: int
    ) -> Visit:
        """Take a call.

        :param at_once: how many calls of the node an attempt may make at the same time.
        """
        self.world.process()  # a dead process calls nobody
        partition, offset, key = None, -1, ""
        if context.topic is None:
            try:
                self.wrong.append(f"{node}: {context.idempotency_key} names no record")
            except TopologyError:
                sometimes("a call that no record led to was refused a key")
        else:
            partition, offset = TopicPartition(context.topic, context.partition), context.offset
            key = context.idempotency_key
        visit = Visit(
            node=node, attempt=self._attempt(), partition=partition, offset=offset, key=key, asked=asked
        )
        self.events.append(("begin", visit))
        self._running[visit.attempt, node] += 1
        if self._running[visit.attempt, node] > at_once:
            self.wrong.append(f"{node}: more than {at_once} calls at once")
        self._keys[key] += bool(key)
        if self._keys[key] > 1:
            sometimes("a call ran in two tasks at the same time")
        return visit

    def refuse(self, visit: Visit, fates: Fates | None) -> None:
        """Fail as it is the record's fate, or because the service is away; some calls take effect all the
        same.

        :raises ConnectionError: the call fails for now.
        :raises ValueError: it fails for good.
        """
        if fates is None:
            return
        fate, name = fates.of(visit.place), (visit.node, visit.place)
        error: Exception | None = None
        if self._failed[name] < fate.times or fate.then == "fails on":
            self._failed[name] += 1
            error = ConnectionError("not now")
        elif fate.then == "refuses":
            error = ValueError("never")
        elif fates.parks and self.outage is not None and self.outage.hits(visit.key, self.world.seconds):
            error = ConnectionError("away")
            sometimes("a call failed because the service was away")
        if error is None:
            return
        if self.random.random() < 0.3:
            self.take_effect(visit)
            sometimes("a call failed and had taken effect")
        raise error

    def take_effect(self, visit: Visit) -> None:
        """Do what a call asks for, unless that was done."""
        self.world.process()
        if not visit.key:
            return
        known = self.effects.setdefault(visit.key, visit.asked)
        if known != visit.asked:
            self.wrong.append(f"{visit.key} named {known!r}, then {visit.asked!r}")

    def end(self, visit: Visit) -> None:
        """Take note that a call is over, or was given up."""
        if visit.over:
            return
        visit.over = True
        self.events.append(("end", visit))
        self._running[visit.attempt, visit.node] -= 1
        self._keys[visit.key] -= bool(visit.key)

    def _attempt(self) -> int:
        attempt = ATTEMPT.get()
        # It is kept, so that no other one gets its id.
        return self._attempts.setdefault(id(attempt), (attempt, len(self._attempts)))[1]


class Session:
    """What ``resource=`` makes: open from the first record of a task to its end."""

    def __init__(self) -> None:
        self.is_open = False

    async def __aenter__(self) -> Session:
        await asyncio.sleep(0.01)
        self.is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.is_open = False


_SERVICES: list[Service] = []


def service() -> Service:
    """Return the service of the world under way."""
    return _SERVICES[-1]


@contextmanager
def serving(world: World, random: Random) -> Iterator[Service]:
    """Have a service in a block."""
    _SERVICES.append(Service(world, random))
    try:
        yield _SERVICES[-1]
    finally:
        _SERVICES.pop()
