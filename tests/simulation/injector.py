"""Makes the planned faults happen at the port calls of simulated processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from functools import partial
from random import Random
from typing import Any, TypeVar

from airflow_kstreams.streams.ports import CommittedOffset, Fetched, TopicDescription, TopicPartition
from airflow_kstreams.streams.tables.table_port import TablesPort
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from airflow_kstreams.testing.faults import FaultyTables
from tests.simulation.faults import HAPPENS, UNCALLED, Fault, FaultyCall, PlannedFault
from tests.simulation.machines import Machine
from tests.simulation.sometimes import sometimes
from tests.simulation.world import Process, ProcessDied, World

T = TypeVar("T")

#: Place of the timestamp among the arguments of ``writer.produce``.
_TIMESTAMP = 5

#: No other process can notice these calls, so there is no need to let one go on.
_UNNOTICED = frozenset(
    {"writer.produce", "writer.begin", "reader.pause", "reader.resume", "cluster.admin", "files.path"}
)


class FaultInjector:
    """Gives every process its own view of the cluster, and lets faults happen there.

    :param plan: what is to happen.
    :param random: of the faults' details.
    :param second_owner: starts another scheduler.
    :param trace: takes one line per port call; None for no trace.
    :param machines: on which processes run.
    :param uncalled: calls that no process makes.
    :param tables: where tables are; None if there are none.
    :param others: lets somebody else change a table.
    :ivar slots: how many tasks of one driver may run at the same time; 0 for any number.
    """

    def __init__(
        self,
        world: World,
        kafka: InMemoryKafka,
        plan: list[PlannedFault],
        *,
        random: Random,
        second_owner: Callable[[], None],
        trace: Callable[[str], None] | None = None,
        machines: Sequence[Machine] = (Machine(),),
        uncalled: Set[str] = UNCALLED,
        tables: TablesPort | None = None,
        others: Callable[[], None] = lambda: None,
    ) -> None:
        self.world = world
        self.kafka = kafka
        self.plan = plan
        self.random = random
        self.second_owner = second_owner
        self.trace = trace
        self.slots = 0
        self.uncalled = uncalled
        self.others = others
        self._tables = tables
        self.machines = tuple(machines)
        self.fired: Counter[tuple[str, Fault]] = Counter()
        self.calls: Counter[str] = Counter()
        self.children: dict[Process, list[Process]] = {}

    def cluster(self, process: Process) -> FaultyCluster:
        """Return a process's view of the cluster."""
        return FaultyCluster(self.kafka, _ProcessInterceptor(self, process))

    def tables(self, process: Process) -> TablesPort | None:
        """Return a process's view of the tables; None if there are none."""
        return (
            None if self._tables is None else FaultyTables(self._tables, _ProcessInterceptor(self, process))
        )

    def at(self, process: Process, name: str, client: object, effect: Callable[[], T]) -> T:
        """Do something that is like a port call of a process: faults may happen there."""
        return _ProcessInterceptor(self, process).call(name, client, effect, ())

    def machine(self) -> Machine:
        """Return the machine on which the next process runs."""
        return self.random.choice(self.machines)

    def due(self, call: str, process: Process, arguments: tuple[Any, ...]) -> Fault | None:
        """Count a call and return the fault that happens at it."""
        self.calls[call] += 1
        happening = [planned for planned in self.plan if planned.happens(call, process, arguments)]
        return happening[0].fault if happening else None

    def crash(self, process: Process) -> None:
        """Kill a process. Some of its tasks die with it, some live on for a while, not knowing."""
        process.kill()
        for child in self.children.get(process, ()):
            if self.random.random() < 0.5:
                child.kill()


class _ProcessInterceptor:
    """The interceptor of one process."""

    def __init__(self, injector: FaultInjector, process: Process) -> None:
        self._injector = injector
        self._process = process

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        injector, process = self._injector, self._process
        if not process.alive:
            raise ProcessDied
        if name not in _UNNOTICED:
            injector.world.step()
        if name == "writer.produce":
            effect, arguments = self._dated(client, effect, arguments)
        if name in injector.uncalled:
            raise AssertionError(f"{name} is called after all: take it out of UNCALLED")
        fault = injector.due(name, process, arguments)
        if injector.trace is None:
            return effect() if fault is None else self._happen(fault, name, client, effect)
        return self._traced(fault, name, client, effect, arguments)

    def _dated(
        self, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]
    ) -> tuple[Callable[[], T], tuple[Any, ...]]:
        """Date a record that says no time by the clock of its process, as clients do."""
        if len(arguments) < _TIMESTAMP or arguments[_TIMESTAMP - 1] is not None:
            return effect, arguments
        clock, world = self._process.clock, self._injector.world
        if abs(clock.now_ms() - world.now_ms()) > 1_000:
            sometimes("a record was sent at another time than the broker's")
        dated = (*arguments[: _TIMESTAMP - 1], clock.now_ms(), *arguments[_TIMESTAMP:])
        produce: Callable[..., T] = client.produce  # type: ignore[attr-defined]
        return partial(produce, *dated), dated

    def _traced(
        self,
        fault: Fault | None,
        name: str,
        client: object,
        effect: Callable[[], T],
        arguments: tuple[Any, ...],
    ) -> T:
        trace, world = self._injector.trace, self._injector.world
        assert trace is not None
        line = f"{self._process.name:<22} {name}{_shown(arguments)}"
        try:
            result = effect() if fault is None else self._happen(fault, name, client, effect)
        except BaseException as error:
            trace(f"{world.seconds:9.3f} {line} !{fault.value if fault else ''} {type(error).__name__}")
            raise
        trace(f"{world.seconds:9.3f} {line}{f' !{fault.value}' if fault else ''} -> {_result(result)}")
        return result

    def _happen(self, fault: Fault, name: str, client: object, effect: Callable[[], T]) -> T:
        injector = self._injector
        injector.fired[(name, fault)] += 1
        call = FaultyCall(
            name=name,
            client=client,
            effect=effect,
            process=self._process,
            world=injector.world,
            kafka=injector.kafka,
            random=injector.random,
            crash=partial(injector.crash, self._process),
            second_owner=injector.second_owner,
            others=injector.others,
        )
        result: T = HAPPENS[fault](call)
        return result


def _shown(arguments: tuple[Any, ...]) -> str:
    text = ", ".join(_result(argument) for argument in arguments if argument is not None)
    return f"({text})"


def _result(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_result(k)}: {_result(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Fetched):
        return f"{_result(value.records)} ends {_result(value.ends)}"
    if isinstance(value, CommittedOffset):
        return str(value.offset)
    if isinstance(value, TopicDescription):
        return f"{value.partitions} partitions"
    if isinstance(value, TopicPartition):
        return str(value)
    if isinstance(value, list) and len(value) and hasattr(value[0], "offset"):
        return " ".join(f"{record.offset()}={record.value()!r}" for record in value)
    if isinstance(value, list):
        return "[" + ", ".join(_result(item) for item in value) + "]"
    if isinstance(value, bytes) and len(value) > 60:
        return f"{value[:60]!r}..."
    return repr(value) if isinstance(value, str | bytes | int | float | type(None)) else type(value).__name__
