"""An application that writes to a topic and to a table, on a Kafka and on tables in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.tables.table_port import FileFacts
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from airflow_kstreams.testing.in_memory_tables import InMemoryTables, OtherWriter
from tests.support.kafka.in_process import Application
from tests.support.tables.beside_topics import TABLE, topology
from tests.support.tables.packed_rows import packing

APP = "app"


@dataclass
class LandedScene:
    """Runs of one application."""

    options: dict[str, Any] = field(default_factory=dict)
    clock: ManualClock = field(default_factory=lambda: ManualClock(now_ms=1_700_000_000_000))
    kafka: InMemoryKafka = field(init=False)
    tables: InMemoryTables = field(init=False)

    def __post_init__(self) -> None:
        self.kafka, self.tables = InMemoryKafka(clock=self.clock), InMemoryTables(self.clock.now_ms)
        for topic in ("in", "out"):
            self.kafka.create_topic(topic)

    @property
    def topology(self) -> Topology:
        return topology(**self.options)

    @property
    def plan(self) -> TopologyPlan:
        return self.topology.plan(APP)

    @property
    def other(self) -> OtherWriter:
        return self.tables.other_writer(TABLE)

    @property
    def application(self) -> Application:
        return Application(
            application_id=APP,
            topology=self.topology,
            on=self.kafka,
            clock=self.clock,
            tables=self.tables,
            open_rows=packing(self.tables),
        )

    def send(self, count: int = 1) -> None:
        for number in range(count):
            self.kafka.append("in", b'{"text":"a","count":%d}' % number, b"k")

    def run(self, run_id: str, count: int = 1) -> None:
        """A run of so many records."""
        self.send(count)
        self.application.run(run_id)

    def listed(self, run_id: str, count: int = 1) -> Slice:
        """A run of so many records whose tasks are done, and that is not finished."""
        self.send(count)
        slice_ = self.application.begin(run_id)
        self.application.tasks(slice_)
        return slice_


def file_of(rows: int) -> FileFacts:
    """Facts of a file that another program has written."""
    return FileFacts(path="memory://by-hand", size=1, rows=rows)


@dataclass(frozen=True)
class BusyWriter:
    """Another program that commits a snapshot before each call of a name; an interceptor.

    :param other: writes to the table.
    :param before: name of the call.
    """

    other: OtherWriter
    before: str

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Make the call, see ``Interceptor``."""
        if name == self.before:
            self.other.append(file_of(1))
        return effect()
