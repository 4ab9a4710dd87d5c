"""Tables whose whole topic every task sees. Definitions only; what a task sees is given to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, get_args

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.streams.hints.call_site import CallSite
from airflow_kstreams.streams.serde.base import Serde

#: For errors of processors, which ask for stores.
NO_GLOBAL_TABLE = "a global table is no store: join the stream with it ahead of the processor"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalTableDef:
    """A topic that every task sees whole, as a table.

    :param topic: its name in Kafka.
    :param storage: where a process keeps it.
    :param name: that the user gave, empty for none.
    """

    topic: str
    key_serde: Serde
    value_serde: Serde
    storage: Storage = "memory"
    name: str = ""
    site: CallSite | None = None

    def __post_init__(self) -> None:
        if self.storage not in get_args(Storage):
            raise TopologyError(
                f"global_table({self.topic!r}) at {self.site} has storage={self.storage!r}",
                fix=f"choose one of: {', '.join(get_args(Storage))}",
            )

    @property
    def node_names(self) -> tuple[str, str]:
        """What its source and its table are called where a topology is described, as in Kafka Streams."""
        return f"{self.name or self.topic}-source", self.name or f"{self.topic}-table"


class GlobalEntries(Protocol):
    """What a global table holds, as bytes; nothing changes it while a task runs."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if there is none."""
        ...
