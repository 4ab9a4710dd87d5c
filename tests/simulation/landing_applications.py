"""Topologies that write to tables, beside topics or alone, each with what its tables must hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from airflow_kstreams.streams import IcebergTable, KStreamBuilder, Topology
from airflow_kstreams.streams.serde import serdes
from tests.simulation.given import Result
from tests.simulation.history import Row
from tests.simulation.stages import (
    CHANGELOG,
    REPARTITION,
    TABLE_FILES,
    Application,
    Copy,
    Fold,
    TableSink,
    store_spec,
)
from tests.simulation.steps import Steps

RAW, NEXT = "sim.raw", "sim.next"


@dataclass(frozen=True)
class Line:
    """A row, whose table is partitioned by the digit."""

    text: str
    digit: int
    note: str | None = None


def _line(value: str) -> Line:
    return Line(value, len(value) % 2, None if value.endswith("1") else f"of {value}")


def _table(name: str, *, timed: bool) -> IcebergTable:
    return IcebergTable(
        name,
        row=Line,
        partition_by=["digit"] if name == RAW else [],
        timestamp_column="at" if timed else "",
        merge=False,
    )


def _row(result: Result, *, timed: bool) -> Row:
    """Return the row that a result must be, said again in other words."""
    text = result.value
    note = f"of {text}" if text[-1] != "1" else None
    row: Row = (text, 1 if len(text) & 1 else 0, note)
    if not timed:
        return row
    # Clients cannot send 0.
    return (*row, datetime.fromtimestamp((result.timestamp_ms or 1) / 1_000, UTC))


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())


def _rows(steps: Steps) -> Topology:
    """Every other value is a row, so a run may have none."""
    builder = _builder()
    kept = builder.stream("a").filter(lambda key, value: value[-1] in "02468")
    kept.map_values(_line).send_to_table(_table(RAW, timed=True))
    return builder.build()


def _rows_between(steps: Steps) -> Topology:
    builder = _builder()
    stream = builder.stream("a")
    stream.map_values(_line).send_to_table(_table(RAW, timed=True))
    middle = stream.map_values(lambda value: f"{value}m").through("b")
    middle.map_values(_line).send_to_table(_table(NEXT, timed=True))
    middle.map_values(lambda value: f"{value}n").send_to("out")
    return builder.build()


def _rows_folded(steps: Steps) -> Topology:
    builder = _builder()
    stream = builder.stream("a")
    stream.map_values(_line).send_to_table(_table(NEXT, timed=True))
    grouped = stream.group_by(lambda key, value: f"g{int(value) % 3}")
    folded = grouped.aggregate(lambda: "", _joined, store=store_spec(steps.storage)).to_stream()
    folded.map_values(_line).send_to_table(_table(RAW, timed=False))
    return builder.build()


def _joined(key: str, value: str, so_far: str) -> str:
    return f"{so_far}|{value}" if so_far else value


def _sink(table: str, of: Copy | Fold) -> TableSink:
    return TableSink(of=of, table=table, row=partial(_row, timed=isinstance(of, Copy)))


def _as_it_is(key: str, value: str) -> list[tuple[str, str]]:
    return [(key, value)]


def _copy(
    source: str, sink: str = "", results: Callable[[str, str], list[tuple[str, str]]] = _as_it_is
) -> Copy:
    return Copy(sources=(source,), sink=sink, results=results)


LANDINGS: tuple[Application, ...] = (
    Application(
        name="rows",
        build=_rows,
        inputs=("a",),
        through=(),
        stages=(
            _sink(RAW, _copy("a", results=lambda key, value: [(key, value)] if int(value) % 2 == 0 else [])),
        ),
        subtopologies=((("a",), (TABLE_FILES,)), ((TABLE_FILES,), ())),
    ),
    Application(
        name="rows_between",
        build=_rows_between,
        inputs=("a",),
        through=("b",),
        stages=(
            _sink(RAW, _copy("a")),
            _copy("a", "b", lambda key, value: [(key, value + "m")]),
            _sink(NEXT, _copy("b")),
            _copy("b", "out", lambda key, value: [(key, value + "n")]),
        ),
        subtopologies=((("a",), ("b", TABLE_FILES)), (("b",), (TABLE_FILES,)), ((TABLE_FILES,), ())),
    ),
    Application(
        name="rows_folded",
        build=_rows_folded,
        has_stores=True,
        inputs=("a",),
        through=(),
        stages=(
            _sink(NEXT, _copy("a")),
            _copy("a", REPARTITION, lambda key, value: [(f"g{int(value) % 3}", value)]),
            _sink(RAW, Fold(source=REPARTITION, sink="", changelog=CHANGELOG)),
        ),
        subtopologies=(
            (("a",), (REPARTITION, TABLE_FILES)),
            ((REPARTITION,), (TABLE_FILES,)),
            ((TABLE_FILES,), ()),
        ),
    ),
)
