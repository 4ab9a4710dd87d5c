"""Three runs into tables with one row for each key, of a topic's own keys and of changed ones."""

from __future__ import annotations

from functools import cache

from airflow_kstreams.batch.task.work import OpenRows
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.tables.specs import DeltaTable, IcebergTable
from airflow_kstreams.streams.tables.table_port import TablesPort
from tests.simulation.landing_runs import RUNS, LandingRuns, Line
from tests.support.tables.packed_rows import unpacked
from tests.support.tables.packed_upserts import packing_upserts

UPSERTED = ("lake.lines", "/lake/rekeyed")
_KEYS = 3


@cache
def upserting_topology() -> Topology:
    """``in`` -> table; ``in`` with other keys -> repartition topic -> another table."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(Line))
    lines = builder.stream("in")
    lines.send_to_table(
        IcebergTable(UPSERTED[0], row=Line, mode="upsert", key_column="key", partition_by=["bucket(2, key)"])
    )
    rekeyed = lines.select_key(lambda key, value: f"new {key}")
    rekeyed.send_to_table(DeltaTable(UPSERTED[1], row=Line, mode="upsert", key_column="key"))
    return builder.build()


class UpsertRuns(LandingRuns):
    """One play; each record has one of three keys of its partition, and each fourth one no value.

    :ivar last: key -> its last value; keys that were deleted are absent.
    """

    def topology(self) -> Topology:
        """Return the topology."""
        return upserting_topology()

    def open_rows(self, tables: TablesPort) -> OpenRows:
        """Return what opens the rows of a task."""
        return packing_upserts(tables)

    def arrive(self, *partitions: int) -> None:
        """Records arrive on these partitions."""
        for partition in partitions:
            number = next(self._numbers)
            key, text = f"{partition}-{number % _KEYS}", str(number)
            value = None if number % 4 == 0 else f'{{"text":"{text}"}}'.encode()
            self.kafka.append("in", value, key.encode(), partition=partition)
            self.sent.append(key if value is None else f"{key}={text}")

    @property
    def last(self) -> dict[str, str]:
        """Key -> its last value."""
        found: dict[str, str] = {}
        for sent in self.sent:
            key, _, text = sent.partition("=")
            found.pop(key, None)
            if text:
                found[key] = text
        return found

    def wrong(self, *, expired: bool = False, dropped: str = "") -> str:
        """Return what is wrong with what is in the tables; empty if nothing is."""
        for name, beginning in zip(UPSERTED, ("", "new "), strict=True):
            rows = dict(self.tables.rows(name, unpacked))
            expected = {f"{beginning}{key}": text for key, text in self.last.items()}
            if rows != expected:
                return f"{name} has {rows}, expected {expected}"
            snapshots = self.tables.state(name).line()
            said = [each.snapshot.summary.get("kstreams.run-id") for each in snapshots]
            runs = [run for run in said if run is not None][::-1]
            if runs != [*RUNS]:
                return f"{name} has snapshots of {runs}"
        return ""
