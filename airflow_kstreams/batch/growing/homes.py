"""Tells which processor each entry of a changelog belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from airflow_kstreams.streams.partitioning.murmur2 import key_hash
from airflow_kstreams.streams.partitioning.processors import Processors
from airflow_kstreams.streams.plan import EntryKeys
from airflow_kstreams.streams.ports import Record


def placing_hash(keys: EntryKeys | None, key: bytes) -> int | None:
    """Return the hash that decides which processor an entry belongs to; None of one that stays where it is.

    :param keys: what is known of the keys of its changelog.
    :param key: of the changelog's record. One that is not of the store's format stays, too: the store says so
        when it is restored.
    """
    if keys is None or keys.unfit:
        return None
    try:
        placing = keys.placing(key)
    except msgspec.MsgspecError:
        return None
    return None if placing is None else key_hash(placing)


@dataclass(frozen=True, slots=True)
class Homes:
    """The processors of a subtopology, as its entries find them.

    :param processors: how keys find their processor.
    :param entry_keys: by changelog topic. Entries of one whose keys do not tell stay where they are.
    """

    processors: Processors
    entry_keys: Mapping[str, EntryKeys]

    def at_home(self, changelog: str, records: Sequence[Record], processor: int) -> Sequence[Record]:
        """Return the records of a processor's changelog partition that are of keys that it still has."""
        keys = self.entry_keys.get(changelog)
        return [
            record
            for record in records
            if (hashed := placing_hash(keys, record.key() or b"")) is None
            or self.processors.of_hash(hashed) == processor
        ]
