"""Protections of tables of tables, of versions, and of tables that every task sees whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from unittest import mock

from msgspec import structs

from airflow_kstreams.batch.task import global_table_read
from airflow_kstreams.streams.kstream.operators.table_emitter import TableEmitter
from airflow_kstreams.streams.kstream.operators.tables import foreign_key_steps
from airflow_kstreams.streams.ports import Record, TopicPartition
from airflow_kstreams.streams.state.stores.memory.in_memory import InMemoryKeyValueStore
from airflow_kstreams.streams.state.stores.versioned_store import LATEST_MS, VersionedStore
from tests.simulation.protection import Protection, SwitchedOff

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

#: Some of the seeds of one kind of application among so many misses each of them.
_SEEDS = 1_000
_END_BYTES = 8


def _deletions_are_not_restored() -> SwitchedOff:
    """What a restore reads as deleted keeps the value that it had before."""
    restore = InMemoryKeyValueStore.restore_batch

    def with_values(self: InMemoryKeyValueStore, records: Sequence[Record]) -> int:
        return restore(self, [record for record in records if record.value() is not None])

    return mock.patch.object(InMemoryKeyValueStore, "restore_batch", with_values)


def _only_latest_versions_are_restored() -> SwitchedOff:
    """Of each key the version that has no end yet is restored, and no other one."""
    restore = VersionedStore.restore_batch
    latest = LATEST_MS.to_bytes(_END_BYTES, "big")

    def latest_ones(self: VersionedStore, records: Sequence[Record]) -> int:
        return restore(self, [record for record in records if (record.key() or b"")[-_END_BYTES:] == latest])

    return mock.patch.object(VersionedStore, "restore_batch", latest_ones)


def _any_answer_is_right() -> SwitchedOff:
    """An answer counts for the newest copy if it comes from its foreign key, whatever copy was asked for."""
    return mock.patch.object(
        foreign_key_steps, "_matches", lambda entry, answer: entry.foreign_key == answer.foreign_key
    )


def _early_answers_are_forgotten() -> SwitchedOff:
    """An answer that comes before its copy makes no result when that comes."""
    with_copy = foreign_key_steps._with_copy

    def forgetting(*arguments: Any) -> Any:
        return with_copy(*arguments)[0], None

    return mock.patch.object(foreign_key_steps, "_with_copy", forgetting)


def _tables_are_read_as_they_are() -> SwitchedOff:
    """A join sees changes of the other table that it has not been given yet."""
    get = TableEmitter.get
    return mock.patch.object(TableEmitter, "get", lambda self, key, child: get(self, key, None))


def _global_tables_go_on() -> SwitchedOff:
    """A task reads a global table up to where its topic ends when the task begins."""
    read = global_table_read._read_into

    def to_the_end(kept: Any, cluster: Any, table: Any, **named: Any) -> int:
        partitions = [TopicPartition(table.topic, number) for number in range(len(table.spans))]
        ends = cluster.admin().end_offsets(partitions, isolation="read_committed")
        spans = tuple((start, ends[tp]) for tp, (start, _) in zip(partitions, table.spans, strict=True))
        return read(kept, cluster, structs.replace(table, spans=spans), **named)

    return mock.patch.object(global_table_read, "_read_into", to_the_end)


def _in(*kinds: str) -> Callable[[Scenario], bool]:
    return lambda scenario: scenario.application.name.startswith(kinds)


TABLES_KEPT: tuple[Protection, ...] = (
    Protection(
        name="deletions are restored",
        section="6",
        off=_deletions_are_not_restored,
        first=123,
        seeds=_SEEDS,
        concerns=_in("table", "foreign_key"),
    ),
    Protection(
        name="every version is restored",
        section="6",
        off=_only_latest_versions_are_restored,
        first=128,
        seeds=_SEEDS,
        concerns=_in("versions_join"),
    ),
    Protection(
        name="answers are for the newest copy",
        section="6",
        off=_any_answer_is_right,
        first=172,
        seeds=_SEEDS,
        concerns=_in("foreign_key"),
    ),
    Protection(
        name="early answers wait for their copy",
        section="6",
        off=_early_answers_are_forgotten,
        first=94,
        seeds=_SEEDS,
        concerns=_in("foreign_key"),
    ),
    Protection(
        name="joins see tables as they were given them",
        section="6",
        off=_tables_are_read_as_they_are,
        first=59,
        seeds=_SEEDS,
        concerns=_in("tables_"),
    ),
    Protection(
        name="global tables end where they were frozen",
        section="4 stop",
        off=_global_tables_go_on,
        first=39,
        seeds=_SEEDS,
        concerns=_in("global_join"),
    ),
)
