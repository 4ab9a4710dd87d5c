"""Writes folds as lines of code.

In tables in memory that emit at commit points, the lines change an entry in its cell, with one lookup a
record. A change is noted once between two commit points, among those to emit and those to log; the cell has a
flag for that (``Cell.noted``). In every other table the lines get an entry from the store and put a new one;
a tracked table's emitter puts it, as it also remembers the entry before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from airflow_kstreams.streams.graph.services import LoopCode
from airflow_kstreams.streams.kstream.operators.table_emitter import TableEmitter, write_copy
from airflow_kstreams.streams.state.stores.memory.in_memory import InMemoryKeyValueStore
from airflow_kstreams.streams.state.stores.value_copies import IMMUTABLE, FlatCopy

#: Gives the expression for an aggregate, from the code, the variables of key and value, and the expression
#: for the aggregate so far ("" if there is none).
AggregateCode = Callable[[LoopCode, str, str, str], str]


class Folding(NamedTuple):
    """Describes the lines of a fold.

    :param aggregate: function that gives the expression for the new aggregate.
    :param nothing: function to call where there was no aggregate and the function returned none.
    :param copied: function that copies an aggregate that is another object than the one so far: the user's
        function may hold it. None if aggregates never change.
    :param flat: the flat copy that is enough for most aggregates; None if there is none.
    :param value_copied: function that copies a record's value for an aggregate that may take it in; None if
        no other node holds the value, or no aggregate takes it in.
    :param deletes: function that returns True for an aggregate that the store's serde writes as None; None if
        there is no such aggregate.
    """

    aggregate: AggregateCode
    nothing: Callable[[], None]
    copied: Callable[[Any], Any] | None
    flat: FlatCopy | None
    value_copied: Callable[[Any], Any] | None
    deletes: Callable[[Any], bool] | None

    def write(self, code: LoopCode, record: tuple[str, str], so_far: str) -> str:
        """Write the new aggregate, and return the variable that holds it: None if there is none.

        :param record: names of the variables that hold key and value.
        :param so_far: expression for the aggregate so far; "" for none.
        """
        (key, value), result = record, code.variable("result")
        if so_far and self.value_copied is not None:
            taken_in = code.variable("value")
            immutable = code.name(IMMUTABLE, "immutable")
            copied = f"{code.name(self.value_copied, 'value_copied')}({value})"
            code.line(f"{taken_in} = {value} if type({so_far}) in {immutable} else {copied}")
            value = taken_in
        code.line(f"{result} = {self.aggregate(code, key, value, so_far)}")
        if not so_far:
            with code.block(f"if {result} is None"):
                code.line(f"{code.name(self.nothing, 'nothing')}()")
        if self.deletes is not None:
            with code.block(f"if {code.name(self.deletes, 'deletes')}({result})"):
                code.line(f"{result} = None")
        if self.copied is None:
            return result
        if not so_far:
            write_copy(code, self.copied, result, self.flat)
            return result
        with code.block(f"if {result} is not {so_far}"):
            write_copy(code, self.copied, result, self.flat)
        return result


def write_fold(
    code: LoopCode, record: tuple[str, str], folding: Folding, changes: TableEmitter, store: Any
) -> None:
    """Write the lines that fold a record.

    :param record: names of the variables that hold key and value.
    :param folding: the lines of the new aggregate.
    :param changes: the emitter of the table.
    :param store: the table's key-value store, of any kind.
    """
    if changes.cached and not changes.tracked and isinstance(store, InMemoryKeyValueStore):
        _write_cell_fold(code, record, folding, changes, store)
    else:
        _write_entry_fold(code, record, folding, changes, store)


def _write_entry_fold(
    code: LoopCode, record: tuple[str, str], folding: Folding, changes: TableEmitter, store: Any
) -> None:
    key = record[0]
    # The store and the nodes below, which run as closures, look at the record context.
    code.place()
    key_bytes, entry, entry_ms, result = (
        code.variable(hint) for hint in ("key_bytes", "entry", "entry_ms", "result")
    )
    code.line(f"{key_bytes} = {code.serialized(key, store.spec.key_serde, store.serialize_key)}")
    code.line(f"{entry_ms} = {code.timestamp_ms}")
    code.line(f"{entry} = {code.name(store.get_entry, 'get_entry')}({key_bytes})")
    old = code.variable("old")
    if changes.tracked:
        code.line(f"{old} = {code.name(changes.before, 'before')}({key_bytes}, {entry})")
    with code.block(f"if {entry} is None"):
        code.line(f"{result} = {folding.write(code, record, '')}")
    with code.block("else"):
        code.line(f"{result} = {folding.write(code, record, f'{entry}[0]')}")
        with code.block(f"if {entry}[1] > {entry_ms}"):
            code.line(f"{entry_ms} = {entry}[1]")
    if changes.tracked:
        change = code.name(changes.change, "change")
        code.line(f"{change}({key_bytes}, {key}, {old}, {result}, {entry_ms})")
        return
    with code.block(f"if {result} is not None"):
        put_entry = code.name(store.put_entry, "put_entry")
        code.line(f"{put_entry}({key_bytes}, ({result}, {entry_ms}))")
        if changes.cached:
            dirty, born = code.name(changes.dirty, "dirty"), code.name(changes.born, "born")
            with code.block(f"if {entry} is None and {key_bytes} not in {dirty}"):
                code.line(f"{born}.add({key_bytes})")
            code.line(f"{dirty}[{key_bytes}] = {key}")
        else:
            code.line(f"{code.name(changes.emit, 'emit')}({key}, {result}, {entry_ms})")
    with code.block(f"elif {entry} is not None"):
        code.line(f"{code.name(changes.delete, 'delete')}({key_bytes}, {key}, {entry_ms})")


def _write_cell_fold(
    code: LoopCode,
    record: tuple[str, str],
    folding: Folding,
    changes: TableEmitter,
    store: InMemoryKeyValueStore,
) -> None:
    key = record[0]
    find, restored = code.name(store.cells.get, "find"), code.name(store.restored, "restored")
    key_bytes, cell = (code.variable(hint) for hint in ("key_bytes", "cell"))
    code.line(f"{key_bytes} = {code.serialized(key, store.spec.key_serde, store.serialize_key)}")
    code.line(f"{cell} = {find}({key_bytes})")
    with code.block(f"if {cell} is None and {restored}"):
        code.line(f"{cell} = {code.name(store.load, 'load')}({key_bytes})")
    with code.block(f"if {cell} is None"):
        result = folding.write(code, record, "")
        with code.block(f"if {result} is not None"):
            _write_birth(code, key, (key_bytes, cell, result), store, changes)
    with code.block("else"):
        result = folding.write(code, record, f"{cell}.value")
        with code.block(f"if {result} is None"):
            _write_deletion(code, key, (key_bytes, cell), changes)
        with code.block("else"):
            code.line(f"{cell}.value = {result}")
            with code.block(f"if {code.timestamp_ms} > {cell}.timestamp_ms"):
                code.line(f"{cell}.timestamp_ms = {code.timestamp_ms}")
            with code.block(f"if not {cell}.noted"):
                code.line(f"{cell}.noted = True")
                if store.spec.logged:
                    code.line(f"{code.name(store.changed, 'changed')}[{key_bytes}] = {cell}")
                code.line(f"{code.name(changes.dirty, 'dirty')}[{key_bytes}] = {key}")


def _write_birth(
    code: LoopCode,
    key: str,
    found: tuple[str, str, str],
    store: InMemoryKeyValueStore,
    changes: TableEmitter,
) -> None:
    key_bytes, cell, result = found
    dirty = code.name(changes.dirty, "dirty")
    with code.block(f"if {key_bytes} not in {dirty}"):
        code.line(f"{code.name(changes.born, 'born')}.add({key_bytes})")
    code.line(f"{cell} = {code.name(store.add, 'add')}({key_bytes}, {result}, {code.timestamp_ms})")
    code.line(f"{cell}.noted = True")
    code.line(f"{dirty}[{key_bytes}] = {key}")


def _write_deletion(code: LoopCode, key: str, found: tuple[str, str], changes: TableEmitter) -> None:
    key_bytes, cell = found
    # The store dates the deletion by the record being processed.
    code.place()
    newest_ms = f"max({code.timestamp_ms}, {cell}.timestamp_ms)"
    code.line(f"{code.name(changes.delete, 'delete')}({key_bytes}, {key}, {newest_ms})")
