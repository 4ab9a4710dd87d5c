"""An application that writes lines to a table, on a Kafka and on tables in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import TableUnavailableError
from airflow_kstreams.streams.tables.specs import IcebergTable
from airflow_kstreams.streams.tables.table_port import TablesPort
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from airflow_kstreams.testing.in_memory_tables import InMemoryTables, OtherWriter
from tests.support.kafka.in_process import Application
from tests.support.tables.packed_rows import packing, unpacked
from tests.support.tables.sending import send_to_table

APP, TABLE = "app", "lake.lines"


@dataclass
class Line:
    text: str


@dataclass
class Noted:
    text: str
    note: str | None = None


def topology(row: Any = Line, **options: Any) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string())
    lines = builder.stream("in", value_serde=serdes.json(row))
    send_to_table(lines, IcebergTable(TABLE, row=row, **options))
    return builder.build()


@dataclass
class Scene:
    """An application on a Kafka and on tables in memory."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(now_ms=1_700_000_000_000))
    kafka: InMemoryKafka = field(init=False)
    tables: InMemoryTables = field(default_factory=InMemoryTables)
    sent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kafka = InMemoryKafka(clock=self.clock)
        self.kafka.create_topic("in")

    @property
    def other(self) -> OtherWriter:
        return self.tables.other_writer(TABLE)

    def send(self) -> None:
        text = f"line {len(self.sent) + 1}"
        self.sent.append(text)
        self.kafka.append("in", f'{{"text":"{text}"}}'.encode(), b"k")

    def application(
        self, built: Topology | None = None, *, tables: TablesPort | None = None, application_id: str = APP
    ) -> Application:
        return Application(
            application_id=application_id,
            topology=built or topology(),
            on=self.kafka,
            clock=self.clock,
            tables=self.tables if tables is None else tables,
            open_rows=packing(self.tables),
        )

    def run(self, run_id: str, built: Topology | None = None) -> RunSummary:
        self.send()
        return self.application(built).run(run_id)

    def rows(self) -> list[str]:
        return sorted(row[0] for row in self.tables.rows(TABLE, unpacked))


class Down:
    """A catalogue that does not answer a call."""

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Make the call, see ``Interceptor``."""
        if name == self.name:
            raise TableUnavailableError("no answer")
        return effect()


def restored(scene: Scene, state: Any) -> None:
    """Put a table back as it was."""
    scene.tables.states[TABLE] = state
