"""A foreign-key join resolves to the newest pairs, in whatever order its topics are read.

The nodes of the join are bound alone. What one writes lies in queues: of a left key, copies are in one, and
answers in one for each foreign key, since each of these keeps its order in Kafka. Which queue is read next is
drawn. A slice ends when all are empty.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import StoreSpec, serdes
from airflow_kstreams.streams.graph.nodes import SerdeOfTopic
from airflow_kstreams.streams.kstream.operators.tables.foreign_key_steps import (
    ForeignKeyAnswer,
    ForeignKeyResolve,
    ForeignKeySubscribe,
)
from airflow_kstreams.streams.serde import internal_serdes
from airflow_kstreams.streams.serde.internal_serdes import OldAndNew
from airflow_kstreams.streams.state.stores.making import make_store
from tests.support.examples import examples

pytestmark = pytest.mark.promise("foreign-key-joins-end-with-the-newest-values")

TEXT = serdes.string()
INSIDE = SerdeOfTopic(topic="t", side="value", serde=TEXT)
FOREIGN_KEYS = "abc"

#: A left value begins with its foreign key; "-" is none.
LEFT = st.tuples(st.just("l"), st.sampled_from("12"), st.sampled_from(["a", "a2", "b", "b2", "c", "-", None]))
RIGHT = st.tuples(st.just("r"), st.sampled_from(FOREIGN_KEYS), st.sampled_from(["x", "y", None]))
SLICES = st.lists(st.lists(LEFT | RIGHT, max_size=12), min_size=1, max_size=3)

Draw = Callable[[int], int]


def _spec(name: str, keys: serdes.Serde, values: serdes.Serde) -> StoreSpec:
    return StoreSpec(name=name, key_serde=keys, value_serde=values, cached=False)


SUBSCRIPTIONS = _spec("s", internal_serdes.subscription_keys(TEXT, TEXT), serdes.bytes())
COPIES = _spec("c", serdes.bytes(), internal_serdes.resolver_entries(TEXT, TEXT, TEXT))


class _Task:
    """What a node of its own task is bound with."""

    def __init__(self) -> None:
        self.node = "node"
        self.record_context = SimpleNamespace(timestamp_ms=0)
        self.tables: dict[str, Any] = {}
        self._stores: dict[str, Any] = {}

    def store(self, name: str) -> Any:
        spec = {spec.name: spec for spec in (SUBSCRIPTIONS, COPIES)}[name]
        return self._stores.setdefault(name, make_store(spec, self.record_context))

    def counting(self, rule: str) -> Callable[[], None]:
        return lambda: None


def _task() -> Any:
    return _Task()


class _Join:
    def __init__(self, *, left: bool) -> None:
        self.lefts: dict[str, str | None] = {}
        self.rights: dict[str, str | None] = {}
        self.seen: dict[str, str | None] = {}
        self.copies: dict[bytes, deque[Any]] = defaultdict(deque)
        self.subscriptions: dict[str, deque[Any]] = defaultdict(deque)
        self.answers: dict[tuple[bytes, str], deque[Any]] = defaultdict(deque)
        self.changes: dict[str, deque[Any]] = defaultdict(deque)
        self.results: dict[str, str | None] = {}
        self.task = _task()
        self.answering = {key: _task() for key in FOREIGN_KEYS}
        subscribe = ForeignKeySubscribe(
            foreign_key=lambda key, value: None if value == "-" else value[0],
            left=left,
            left_keys=INSIDE,
            left_values=INSIDE,
            right_keys=INSIDE,
            copies="copies",
            subscriptions="subscriptions",
        )
        self.subscribe = subscribe.bind(
            _nowhere,
            _task(),
            {
                "copies": lambda key, value: self.copies[key].append(value),
                "subscriptions": lambda key, value: self.subscriptions[key].append(value),
            },
        )
        self.answer = {key: self._answering(key) for key in FOREIGN_KEYS}
        resolve = ForeignKeyResolve(
            joiner=lambda left, right: f"{left}+{right}",
            left=left,
            store=COPIES,
            left_keys=INSIDE,
            left_values=INSIDE,
            right_values=INSIDE,
        )
        self.resolve = resolve.bind(self.results.__setitem__, self.task, {})

    def _answering(self, foreign_key: str) -> Callable[[Any, Any], None]:
        """Bind the right table's node of the task that has one foreign key."""
        task = self.answering[foreign_key]
        task.tables["r"] = SimpleNamespace(get=self._right)
        operator = ForeignKeyAnswer(table="r", store=SUBSCRIPTIONS, right_keys=INSIDE, right_values=INSIDE)
        return operator.bind(lambda key, value: self.answers[key, foreign_key].append(value), task, {})

    def _right(self, key: str, child: str | None) -> tuple[str, int] | None:
        value = self.seen.get(key)
        return None if value is None else (value, 0)

    def pipe(self, rows: Sequence[tuple[str, str, str | None]], draw: Draw) -> None:
        """Process a slice: each node wholly before the next one, from queues that are drawn."""
        for side, key, value in rows:
            if side == "r":
                if value is not None or self.rights.get(key) is not None:
                    self.changes[key].append(OldAndNew(value, self.rights.get(key)))
                self.rights[key] = value
                continue
            self.subscribe(key, OldAndNew(value, self.lefts.get(key)))
            self.lefts[key] = value
        for key in FOREIGN_KEYS:
            for queue in _merged([self.subscriptions[key], self.changes[key]], draw):
                value = queue.popleft()
                if isinstance(value, OldAndNew):
                    self.seen[key] = value.new
                self.answer[key](key, value)
        places = [*self.copies, *(key for key, _ in self.answers)]
        queues = [*self.copies.values(), *self.answers.values()]
        by_queue = {id(queue): place for place, queue in zip(places, queues, strict=True)}
        for queue in _merged(queues, draw):
            self.resolve(by_queue[id(queue)], queue.popleft())


def _merged(queues: Sequence[deque[Any]], draw: Draw) -> Any:
    while full := [queue for queue in queues if queue]:
        yield full[draw(len(full))]


def _nowhere(key: Any, value: Any) -> None:
    raise AssertionError(key)


@settings(max_examples=examples(400), deadline=None)
@given(slices=SLICES, left=st.booleans(), data=st.data())
def test_newest_pairs_are_the_result_in_whatever_order_topics_are_read(
    slices: list[list[tuple[str, str, str | None]]], left: bool, data: st.DataObject
) -> None:
    join = _Join(left=left)
    for rows in slices:
        join.pipe(rows, lambda count: data.draw(st.integers(0, count - 1)) if count > 1 else 0)
        expected = {}
        for key, value in join.lefts.items():
            right = None if value is None else join.rights.get(value[0])
            if value is not None and (left or right is not None):
                expected[key] = f"{value}+{right}"
        assert {key: value for key, value in join.results.items() if value is not None} == expected
        entries = dict(join.task.store("c").all())
        assert not any(entry.waiting for entry in entries.values())
        assert {key.decode() for key in entries} == {
            key for key, value in join.lefts.items() if value is not None and (left or value != "-")
        }
        event(f"{len(expected)} results")


@pytest.mark.promise("foreign-key-joins-follow-both-sides")
@settings(max_examples=examples(100), deadline=None)
@given(rows=st.lists(LEFT, max_size=20), left=st.booleans())
def test_subscriptions_are_those_of_the_newest_entries(
    rows: list[tuple[str, str, str | None]], left: bool
) -> None:
    join = _Join(left=left)
    join.pipe(rows, lambda count: 0)
    for foreign_key in FOREIGN_KEYS:
        subscribed = {key[5:].decode() for key, _ in join.answering[foreign_key].store("s").all()}
        assert subscribed == {
            key for key, value in join.lefts.items() if value is not None and value[0] == foreign_key
        }
