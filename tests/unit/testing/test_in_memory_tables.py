from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_kstreams.streams.errors import TableMovedError, TableRefusedError, TableUnavailableError
from airflow_kstreams.streams.table_plan import Column
from airflow_kstreams.streams.tables.table_port import FileFacts, TableCommit, TableLook, TablePort
from airflow_kstreams.testing.faults import FaultyTables
from airflow_kstreams.testing.in_memory_tables import InMemoryTables

SPEC = SimpleNamespace(location="flights.carriers")
COLUMNS = (Column("carrier", "text"),)


def _created(tables: InMemoryTables) -> TablePort:
    port = tables.table(SPEC)
    port.create(COLUMNS, ("carrier",))
    return port


def _look(port: TablePort) -> TableLook:
    look = port.look("app")
    assert look is not None
    return look


def _written(port: TablePort, name: str, text: str) -> FileFacts:
    files = port.files(_look(port))
    path = files.path(name, [("carrier", text)])
    with files.create(path) as out:
        out.write(text.encode())
    return FileFacts(path=path, size=files.sizes([path])[path], rows=1, partition=(text,))


def _commit(sequence: int, *added: FileFacts) -> TableCommit:
    return TableCommit(application_id="app", sink="carriers", sequence=sequence, added=added)


def _story(tables: InMemoryTables) -> list[Any]:
    port, other = _created(tables), tables.other_writer(SPEC.location)
    port.commit(_look(port), _commit(1, _written(port, "a", "UA")))
    other.append(_written(port, "b", "AA"))
    other.expire(1)
    look = _look(port)
    names = list(port.files(look).names("a"))
    return [look.table_id, look.marks, look.snapshot, port.snapshots(look), names]


def test_same_calls_make_the_same_table() -> None:
    assert _story(InMemoryTables()) == _story(InMemoryTables())
    times = iter(range(1_000, 2_000))
    assert _story(InMemoryTables(lambda: next(times)))[-1][0][1] == 1_000


def test_rows_are_those_of_the_newest_snapshot() -> None:
    tables = InMemoryTables()
    port = _created(tables)
    first = _written(port, "a", "UA")
    port.commit(_look(port), _commit(1, first))
    tables.other_writer(SPEC.location).compact(removed=[first.path], added=[_written(port, "b", "UA")])
    _written(port, "c", "never listed")
    assert tables.rows(SPEC.location, lambda data: [data.decode()]) == ["UA"]
    assert port.snapshots(_look(port))[-1].operation == "replace"
    with pytest.raises(TableRefusedError, match="is to be taken out"):
        tables.other_writer(SPEC.location).compact(removed=[first.path], added=[])


def test_file_is_not_kept_when_the_block_that_writes_it_fails() -> None:
    port = _created(InMemoryTables())
    files = port.files(_look(port))
    with pytest.raises(ZeroDivisionError), files.create(files.path("a")) as out:
        out.write(b"x")
        raise ZeroDivisionError
    assert files.sizes([files.path("a")]) == {}
    with pytest.raises(TableUnavailableError, match="does not exist"):
        files.read(files.path("a"))


@pytest.mark.parametrize("change", ["change_partitioning", "make_anew", "drop"])
def test_commit_is_refused_when_another_writer_changed_the_table(change: str) -> None:
    tables = InMemoryTables()
    port, other = _created(tables), tables.other_writer(SPEC.location)
    look = _look(port)
    if change == "change_partitioning":
        other.change_partitioning(())
    elif change == "make_anew":
        other.make_anew()
    else:
        other.drop()
        assert port.look("app") is None
    with pytest.raises(TableMovedError):
        port.commit(look, _commit(1))


def test_look_shows_what_another_writer_has_set() -> None:
    tables = InMemoryTables()
    port = _created(tables)
    before = _look(port)
    tables.other_writer(SPEC.location).change(refused=("it is locked",), target_bytes=5, sort_by=("carrier",))
    look = _look(port)
    assert (look.refused, look.target_bytes, look.sort_by) == (("it is locked",), 5, ("carrier",))
    assert before.refused == ()


def test_forgotten_snapshots_take_their_files_along() -> None:
    tables = InMemoryTables()
    port = _created(tables)
    first = _written(port, "a", "UA")
    port.commit(_look(port), _commit(1, first))
    port.commit(
        _look(port),
        TableCommit(application_id="app", sink="carriers", sequence=2, removed=[first.path]),
    )
    assert first.path in tables.stored
    port.expire(_look(port), 1)
    assert first.path not in tables.stored


def test_interceptor_gets_each_call_of_a_table_and_of_its_files() -> None:
    seen: list[tuple[str, tuple[Any, ...]]] = []

    class Seeing:
        def call(self, name: str, client: object, effect: Any, arguments: tuple[Any, ...]) -> Any:
            seen.append((name, arguments))
            return effect()

    port = FaultyTables(InMemoryTables(), Seeing()).table(SPEC)
    port.create(COLUMNS, ())
    look = _look(port)
    files = port.files(look)
    files.create(files.path("a")).close()
    files.sizes([files.path("a")])
    port.commit(look, _commit(1))
    names = [name for name, _ in seen]
    assert names == [
        "table.create",
        "table.look",
        "files.path",
        "files.create",
        "files.path",
        "files.sizes",
        "table.commit",
    ]
    assert seen[0][1] == (["carrier"], [])
