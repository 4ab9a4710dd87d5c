"""Names of the tables, which the application, the strikes and the verifier share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dev.chaos_rounds.topics import APPLICATION_ID

#: Where the application finds the place of its Delta tables.
DELTA_ROOT = "KSTREAMS_CHAOS_DELTA_ROOT"
TABLE_FILES = f"{APPLICATION_ID}-table-files"
NAMESPACE, KEY_COLUMN = "chaos", "holder"
#: Rows and snapshots of others have a run that begins so.
OTHER = "other-"


@dataclass(frozen=True, slots=True)
class TableName:
    """One of the tables.

    :param name: of it; the last part of its location.
    """

    format: Literal["iceberg", "delta"]
    name: str

    @property
    def sink(self) -> str:
        """Name of the sink, under which its mark stands."""
        return f"{NAMESPACE}.{self.name}" if self.format == "iceberg" else self.name

    @property
    def upsert(self) -> bool:
        """Whether it has one row for each key."""
        return self.name == "accounts"

    def __str__(self) -> str:
        """Say which it is."""
        return f"{self.format.title()}'s {self.name}"


#: In the order in which a run commits to them.
TABLES = (
    TableName("delta", "accounts"),
    TableName("iceberg", "payments"),
    TableName("delta", "payments"),
    TableName("iceberg", "accounts"),
)
