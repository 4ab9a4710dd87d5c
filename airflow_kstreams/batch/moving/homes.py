"""Which processor each entry of a changelog belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from airflow_kstreams.streams.entry_keys import EntryKeys
from airflow_kstreams.streams.partitioning.processors import Processors
from airflow_kstreams.streams.ports import Record


@dataclass(frozen=True, slots=True)
class Homes:
    """The processors of a subtopology, as its entries find them.

    :param processors: how keys find their processor.
    :param entry_keys: by changelog topic. Entries of one whose keys do not tell stay where they are.
    """

    processors: Processors
    entry_keys: Mapping[str, EntryKeys]

    def of(self, changelog: str, key: bytes) -> int | None:
        """Return the processor of an entry; None of one that stays where it is.

        :param key: of the changelog's record. One that is not of the store's format stays, too: the store
            says so when it is restored.
        """
        keys = self.entry_keys.get(changelog)
        if keys is None or keys.unfit:
            return None
        try:
            placing = keys.placing(key)
        except msgspec.MsgspecError:
            return None
        return None if placing is None else self.processors.of_key(placing)

    def at_home(self, changelog: str, records: Sequence[Record], processor: int) -> Sequence[Record]:
        """Return the records of a processor's changelog partition that are of keys that it still has."""
        return [record for record in records if self.of(changelog, record.key() or b"") in (None, processor)]
