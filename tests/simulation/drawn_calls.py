"""What of a seed calls a service: drawn apart from all else, so that other seeds stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from airflow_kstreams.streams.calls.call import AsyncNode, MakeCaller
from tests.simulation.called_applications import INSTEAD, INSTEAD_AGAIN
from tests.simulation.faults import Fault, PlannedFault
from tests.simulation.injector import FaultInjector
from tests.simulation.retries import DrawnRetries, drawn_retries
from tests.simulation.stages import Application
from tests.simulation.world import Process
from tests.simulation.world_caller import WorldCaller

#: Share of the seeds that call, and of those in which functions run on several threads.
_CALLS, _THREADS = 0.3, 0.3
#: How long slow calls take: longer than leases and transactions last. Where results wait for a commit
#: point, a transaction is open meanwhile.
_SLOW_SECONDS, _NOT_THAT_SLOW = (1.0, 4.0, 13.0), (0.3, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCalls:
    """How a seed calls.

    :param application: whose steps call.
    :param settings: beside those of the seed.
    :param plan: faults that happen to tasks while calls are under way.
    :param retries: how it calls again; None if it does not.
    """

    application: Application
    settings: Mapping[str, Any]
    plan: Sequence[PlannedFault]
    retries: DrawnRetries | None

    @property
    def parks(self) -> bool:
        """Whether steps may have retry topics."""
        return self.retries is not None

    def __str__(self) -> str:
        return f"calls with {dict(self.settings)}{f', {self.retries}' if self.retries else ''}"


def drawn_calls(seed: int, application: Application) -> DrawnCalls | None:
    """Draw whether and how a seed calls.

    :param application: what it has been drawn.
    """
    random = Random(f"{seed} calls")
    if random.random() >= _CALLS:
        return None
    if application.name in INSTEAD and random.random() < 0.6:
        application = INSTEAD[application.name]
    settings: dict[str, Any] = {}
    if random.random() < _THREADS:
        threads = random.choice((2, 3))
        settings = {"num.threads.per.task": threads, "num.stream.threads": threads}
    if random.random() < 0.5:
        settings["max.waiting.results"] = random.choice((1, 2, 5))
    faults = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.ZOMBIE, Fault.DELAY, Fault.SECOND_OWNER)
    plan = [
        PlannedFault(
            call=random.choice(("calls.start", "calls.ended", "calls.ended", "calls.open")),
            fault=random.choice(faults),
            number=int(40 ** random.random()),
        )
        for _ in range(random.choice((0, 1, 1, 2)))
    ]
    retries = drawn_retries(seed, application, INSTEAD_AGAIN)
    if retries is not None:
        application = retries.application
        settings |= retries.settings
        plan += retries.plan
    return DrawnCalls(application=application, settings=settings, plan=tuple(plan), retries=retries)


def callers(seed: int, injector: FaultInjector, application: Application) -> Callable[[Process], MakeCaller]:
    """Return what makes the callers of each process."""
    random = Random(f"{seed} callers")
    slow_seconds = _NOT_THAT_SLOW if application.waits_for_points else _SLOW_SECONDS

    def caller(process: Process, async_nodes: Sequence[AsyncNode]) -> WorldCaller:
        return WorldCaller(
            async_nodes, random=random, process=process, at=injector.at, slow_seconds=slow_seconds
        )

    return lambda process: partial(caller, process)
