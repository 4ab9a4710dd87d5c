"""In at_least_once, an attempt that dies may leave copies without their subscriptions, and the other way
round, and the next one sends all of them again. Whatever comes when, the last result must be right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_kstreams.streams import StoreSpec, serdes
from airflow_kstreams.streams.graph.nodes import SerdeOfTopic
from airflow_kstreams.streams.graph.services import NodeContext
from airflow_kstreams.streams.kstream.operators.tables.foreign_key_steps import ForeignKeyResolve, hash_of
from airflow_kstreams.streams.serde import internal_serdes
from airflow_kstreams.streams.serde.internal_serdes import Answer, LeftCopy

_TEXT = serdes.string()
_RIGHT = {b"f": b"F", b"g": b"G"}

#: A left value is its foreign key and a number.
Values = Sequence[bytes]


def _copy(time_ms: int, value: bytes) -> LeftCopy:
    return LeftCopy(value[:1], hash_of(value, time_ms), value)


def _answer(time_ms: int, value: bytes) -> Answer:
    return Answer(value[:1], hash_of(value, time_ms), _RIGHT[value[:1]], True)


def _result(records: Sequence[tuple[int, LeftCopy | Answer]]) -> tuple[str | None, dict[bytes, Any]]:
    """Return the last result of a resolver, and what its store holds then.

    :param records: with the times of what they are for.
    """
    shown: list[str | None] = [None]
    held: dict[bytes, Any] = {}

    def put(key: bytes, entry: Any) -> None:
        held.pop(key, None)
        if entry is not None:
            held[key] = entry

    side = SerdeOfTopic(topic="t", side="value", serde=_TEXT)
    spec = StoreSpec(
        name="s",
        key_serde=serdes.bytes(),
        value_serde=internal_serdes.resolver_entries(_TEXT, _TEXT, _TEXT),
        cached=False,
    )
    operator = ForeignKeyResolve(
        joiner=lambda left, right: f"{left}+{right}",
        left=True,
        store=spec,
        left_keys=side,
        left_values=side,
        right_values=side,
    )
    store = SimpleNamespace(get_entry=held.get, put_entry=put)
    now = SimpleNamespace(timestamp_ms=0)
    context = SimpleNamespace(store=lambda name: store, record_context=now, node="resolve")
    run = operator.bind(lambda key, value: shown.append(value), cast("NodeContext", context), {})
    for time_ms, record in records:
        now.timestamp_ms = time_ms
        run(b"k", record)
    return shown[-1], held


def _merged(*queues: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Give every order in which queues can be read."""
    if not any(queues):
        yield ()
    for number, queue in enumerate(queues):
        if queue:
            rest = (*queues[:number], queue[1:], *queues[number + 1 :])
            yield from ((queue[0], *more) for more in _merged(*rest))


def _sent(values: Values, copies: int, subscriptions: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Return copies, and answers from f and from g, if an attempt has left so many before the next one."""
    dated = [*enumerate(values)]
    answers = [(time_ms, _answer(time_ms, value)) for time_ms, value in (*dated[:subscriptions], *dated)]
    return (
        [(time_ms, _copy(time_ms, value)) for time_ms, value in (*dated[:copies], *dated)],
        [(time_ms, answer) for time_ms, answer in answers if answer.foreign_key == b"f"],
        [(time_ms, answer) for time_ms, answer in answers if answer.foreign_key == b"g"],
    )


@pytest.mark.promise("foreign-key-joins-end-with-the-newest-values")
@pytest.mark.parametrize(
    "values",
    [
        (b"f1", b"f2"),
        (b"f1", b"g2"),
        pytest.param((b"f1", b"g2", b"f1"), marks=pytest.mark.prove),  # as many orders as of all others
        (b"f1", b"f2", b"g3"),
        (b"f1", b"f2", b"f1"),
    ],
)
def test_last_result_is_right_when_copies_or_subscriptions_of_a_dead_attempt_come_too(values: Values) -> None:
    last = values[-1]
    for left_copies in range(len(values)):
        for left_subscriptions in range(len(values)):
            for records in _merged(*_sent(values, left_copies, left_subscriptions)):
                result, _ = _result(records)
                right = _RIGHT[last[:1]].decode()
                assert result == f"{last.decode()}+{right}", [record for _, record in records]


@pytest.mark.parametrize("values", [(b"f1", b"f2", b"f1"), (b"f1", b"g2", b"f1"), (b"f1", b"f1", b"g2")])
def test_nothing_waits_when_every_copy_and_answer_came_once(values: Values) -> None:
    last = values[-1]
    for records in _merged(*_sent(values, 0, 0)):
        result, held = _result(records)
        assert result == f"{last.decode()}+{_RIGHT[last[:1]].decode()}"
        assert held[b"k"][0].waiting == ()
