"""Says where a table of a benchmark is, and what the bench has to know of it beside its topology."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from airflow_kstreams.streams import DeltaTable, IcebergTable
from airflow_kstreams.tables.connections import OpenedTables, open_tables

if TYPE_CHECKING:
    from pyiceberg.table import Table

Format = Literal["iceberg", "delta"]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a table is.

    :param folder: folder for all tables of an application, and for the catalogue of Iceberg.
    :param name: name of the table: letters, digits, _ and -.
    """

    format: Format
    folder: str
    name: str

    @property
    def location(self) -> str:
        """What a topology calls the table: its identifier, or its folder."""
        return f"bench.{self.name}" if self.format == "iceberg" else f"{self.folder}/{self.name}"

    @property
    def settings(self) -> dict[str, str]:
        """What a connection would say."""
        return settings_of(self.folder)

    def opened(self) -> OpenedTables:
        """Return what opens the table, by a client of its own."""
        return open_tables(self.settings)

    def by_pyiceberg(self) -> Table:
        """Return the table, which is Iceberg's, as the library alone loads it."""
        from pyiceberg.catalog.sql import SqlCatalog

        settings = {name.removeprefix("iceberg."): text for name, text in self.settings.items()}
        return SqlCatalog("default", **settings).load_table(self.location)


def settings_of(folder: str | Path) -> dict[str, str]:
    """Return the settings of tables in a folder: a SQLite file is the catalogue of those of Iceberg."""
    return {
        "iceberg.type": "sql",
        "iceberg.uri": f"sqlite:///{folder}/catalog.db",
        "iceberg.warehouse": f"file://{folder}/lake",
    }


def described(place: Place, row: type, **options: object) -> IcebergTable | DeltaTable:
    """Return a table as a topology describes it.

    :param row: type of its rows.
    :param options: further ones of the description, which both formats have.
    """
    kind = IcebergTable if place.format == "iceberg" else DeltaTable
    return kind(place.location, row=row, **options)  # type: ignore[arg-type]
