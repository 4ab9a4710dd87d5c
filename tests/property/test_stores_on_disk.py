"""Stores of windows, sessions and joins give the same answers in RocksDB as in memory, whatever is done to
them, with restarts between: from the changelog, and from their own files.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import SessionStoreSpec, StoreSpec, WindowStoreSpec, serdes
from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.making import make_store
from tests.support.examples import examples

pytestmark = pytest.mark.promise("storage-changes-no-result")

WINDOWS = WindowStoreSpec(name="w", key_serde=serdes.bytes(), value_serde=serdes.json(), retention_ms=10)
SESSIONS = SessionStoreSpec(name="s", key_serde=serdes.bytes(), value_serde=serdes.json(), retention_ms=10)
JOIN = JoinStoreSpec(name="j", key_serde=serdes.bytes(), value_serde=serdes.json(), retention_ms=8_000)

#: Some begin like others, and some hold what rows are escaped by.
KEYS = st.sampled_from([b"", b"\x00", b"\x00\xff", b"\xff", b"a", b"a\x00", b"a\x00\x00", b"ab", b"b"])
TIMES = st.integers(-3, 30) | st.sampled_from([-(2**63) + 1, 2**62])
VALUES = st.none() | st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, TIMES, st.integers(0, 5), VALUES),
        st.tuples(st.just("get"), KEYS, TIMES, st.integers(0, 5)),
        st.tuples(st.just("range"), KEYS, st.none() | TIMES, st.none() | TIMES),
        st.tuples(st.just("expire"), st.integers(0, 40)),
        st.tuples(st.sampled_from(["all", "next", "drain", "restart", "reopen"])),
    ),
    max_size=40,
)
FEW = settings(max_examples=examples(60), deadline=None)


class Form:
    """A store of one form, and what its changelog holds."""

    def __init__(self, spec: StoreSpec, root: Path) -> None:
        self.spec, self.root = spec, root
        self.log: dict[bytes, tuple[bytes | None, int]] = {}
        self.lives = 0
        self.context = TaskRecordContext()
        self.store: Any = None
        self.woken: list[int] = []
        self.now_ms = -1
        self.begin(self.root / "0")

    def begin(self, folder: Path) -> None:
        """Make the store of the next task."""
        self.store = make_store(self.spec, self.context)
        if isinstance(self.spec, JoinStoreSpec):
            self.store.follow(lambda: self.now_ms, lambda: self.now_ms, self.woken.append)
        self.folder = folder
        if self.spec.storage == "rocksdb":
            self.store.open(folder)
            if isinstance(self.spec, JoinStoreSpec):
                self.store._changes = 3
            else:
                self.store.held._kept_entries, self.store.held._tombstones = 3, 2

    def drain(self) -> dict[bytes, tuple[bytes | None, int]]:
        """Return what changed, which the changelog holds then."""
        changes = {key: (value, time_ms) for key, value, time_ms in self.store.drain_changes()}
        for key, change in changes.items():
            if change[0] is None:
                self.log.pop(key, None)
            else:
                self.log[key] = change
        return changes

    def restart(self, *, files: bool) -> None:
        """End the task and begin the next one, which has the files or the changelog."""
        self.drain()
        self.close()
        self.lives += 1
        kept = files and self.spec.storage == "rocksdb"
        self.begin(self.folder if kept else self.root / str(self.lives))
        if not kept:
            for key, (value, time_ms) in self.log.items():
                self.store.restore(key, value, time_ms)

    def close(self) -> None:
        if self.spec.storage == "rocksdb":
            self.store.close()


class Pair:
    """The same store in both forms; a context manager that closes them."""

    def __init__(self, spec: StoreSpec) -> None:
        self._closing = ExitStack()
        root = Path(self._closing.enter_context(tempfile.TemporaryDirectory()))
        self.forms = [
            Form(spec, root / "memory"),
            Form(dataclasses.replace(spec, storage="rocksdb"), root / "rocksdb"),
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.forms[1].close()
        self._closing.close()

    def __iter__(self) -> Iterator[Form]:
        return iter(self.forms)


def answer(form: Form, step: tuple[Any, ...]) -> Any:
    """Do what a step says, and return what the store says."""
    what, *given_ = step
    store = form.store
    form.context.timestamp_ms += 1
    if what == "put":
        key, start_ms, length_ms, value = given_
        return store.put(key, value, *_bounds(form, start_ms, length_ms))
    if what == "get":
        key, start_ms, length_ms = given_
        return store.get(key, *_bounds(form, start_ms, length_ms))
    if what == "range":
        return list(store.range(*given_))
    if what == "expire":
        expired: list[Any] = []
        store.expire(given_[0], lambda *entry: expired.append(entry))
        return expired
    if what == "all":
        return list(store.all()), list(store.entries())
    if what == "next":
        return store.next_expiry_ms()
    if what == "drain":
        return form.drain()
    return form.restart(files=what == "reopen")


def _bounds(form: Form, start_ms: int, length_ms: int) -> tuple[int, ...]:
    if isinstance(form.spec, SessionStoreSpec):
        return start_ms, min(start_ms + length_ms, 2**63 - 1)
    return (start_ms,)


@pytest.mark.parametrize("spec", [WINDOWS, SESSIONS])
@FEW
@given(steps=STEPS)
def test_windows_and_sessions_give_equal_answers_in_both_forms(
    spec: StoreSpec, steps: list[tuple[Any, ...]]
) -> None:
    with Pair(spec) as pair:
        for step in [*steps, ("all",), ("next",), ("drain",)]:
            in_memory, on_disk = (answer(form, step) for form in pair)
            assert on_disk == in_memory, step
        assert pair.forms[0].log == pair.forms[1].log


@pytest.mark.parametrize("spec", [WINDOWS, SESSIONS])
@FEW
@given(steps=STEPS)
def test_earliest_expiry_is_told_when_it_comes_before_all_others(
    spec: StoreSpec, steps: list[tuple[Any, ...]]
) -> None:
    """What a node's timer needs: no entry expires before the moment that was told last."""
    with Pair(spec) as pair:
        for form in pair:
            timer: list[int] = [2**63]
            for step in steps:
                if step[0] in ("restart", "reopen"):
                    continue
                form.store.on_earliest = lambda ms, timer=timer: timer.append(min(ms, timer[-1]))
                answer(form, step)
                next_ms = form.store.next_expiry_ms()
                if step[0] == "expire":
                    timer.append(2**63 if next_ms is None else next_ms)
                assert next_ms is None or timer[-1] <= next_ms


JOIN_TIMES = st.integers(0, 30_000)
JOIN_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, JOIN_TIMES, st.integers(0, 5), st.booleans()),
        st.tuples(st.just("match"), KEYS, JOIN_TIMES, JOIN_TIMES),
        st.tuples(st.just("find"), KEYS, JOIN_TIMES, JOIN_TIMES),
        st.tuples(st.just("pass"), st.integers(0, 40_000)),
        st.tuples(st.sampled_from(["all", "first", "drain", "restart", "reopen"])),
        st.tuples(st.just("get"), KEYS),
        st.tuples(st.just("range"), KEYS, KEYS),
    ),
    max_size=40,
)


def join_answer(form: Form, step: tuple[Any, ...]) -> Any:
    what, *given_ = step
    store = form.store
    if what == "put":
        return store.put(*given_)
    if what in ("find", "match"):
        key, one_ms, other_ms = given_
        found = store.find(key, min(one_ms, other_ms), max(one_ms, other_ms))
        if what == "match":
            store.match(key, found)
        return _without_numbers(found)
    if what == "pass":
        form.now_ms = max(form.now_ms, given_[0])
        released = list(store.release(form.now_ms - 3_000))
        released += store.release(form.now_ms - 2_000)
        store.remove_expired(form.now_ms)
        return [(key, _without_numbers([element])) for key, element in released]
    if what == "all":
        return list(store.all())
    if what == "first":
        return store.first_waiting_ms()
    if what == "drain":
        return sorted((key[:-8], change) for key, change in form.drain().items())
    if what in ("get", "range"):
        found = getattr(store, what)(*given_)
        return found if what == "get" else list(found)
    return form.restart(files=what == "reopen")


def _without_numbers(elements: list[Any]) -> list[Any]:
    """Arrival numbers go on behind the largest one there is, which files know of more elements."""
    return [(time_ms, value) for time_ms, _, value in elements]


@FEW
@given(steps=JOIN_STEPS)
def test_elements_of_joins_give_equal_answers_in_both_forms(steps: list[tuple[Any, ...]]) -> None:
    with Pair(JOIN) as pair:
        for step in [*steps, ("all",), ("first",), ("pass", 2**40), ("all",), ("drain",)]:
            in_memory, on_disk = (join_answer(form, step) for form in pair)
            assert on_disk == in_memory, step
        assert {key[:-8] for key in pair.forms[0].log} == {key[:-8] for key in pair.forms[1].log}
