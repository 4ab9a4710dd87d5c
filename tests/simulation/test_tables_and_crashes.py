"""A process dies at every port call of three runs of tables: what stays in Kafka is what runs leave that
nothing disturbs, and what anyone would work out by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, SlidingWindow, StoreSpec, Topology, serdes
from tests.simulation.calling_runs import Arrivals, CallingRuns, Left
from tests.simulation.crash_points import Calls, deaths

#: Two partitions; in the second run one of them has nothing new. Rows change their values, and are deleted.
ARRIVALS: Arrivals = {
    "in": [
        [
            (0, b"a", b'"v1"', 10),
            (0, b"b", b'"y2"', 20),
            (0, b"a", b'"y3"', 30),
            (1, b"u", b'"v4"', 15),
            (1, b"d", b'"z5"', 25),
        ],
        [(0, b"b", b'"v6"', 40), (0, b"a", None, 50), (0, b"b", b'"y7"', 60)],
        [(0, b"a", b'"v8"', 70), (1, b"u", None, 80), (1, b"d", b'"v9"', 90)],
    ],
    "other": [
        [(0, b"a", b'"A1"', 12), (1, b"v", b'"V2"', 16), (0, b"y", b'"Y3"', 35)],
        [(0, b"b", b'"B4"', 45), (0, b"y", None, 55)],
        [(1, b"v", b'"V5"', 75), (0, b"y", b'"Y6"', 85), (0, b"a", None, 95)],
    ],
}


def tables_joined(builder: KStreamBuilder) -> None:
    """One of them derived, with a filter, and both with stores that are cached."""
    derived = builder.table("in").map_values(lambda text: text.upper()).filter(lambda key, text: text != "Y3")
    joined = derived.outer_join(builder.table("other"), lambda left, right: [left, right])
    joined.to_stream().send_to("out")


def grouped(builder: KStreamBuilder) -> None:
    """What a row gave its group is taken back when the row changes."""
    by_letter = builder.table("in").group_by(lambda key, text: (text[0], int(text[1:])))
    by_letter.aggregate(
        lambda: 0, lambda key, number, total: total + number, lambda key, number, total: total - number
    ).to_stream().send_to("out")


def foreign_keys_joined(builder: KStreamBuilder) -> None:
    """Three subtopologies: of the entries, of what they name, and of the results."""
    entries, named = builder.table("in"), builder.table("other")
    joined = entries.left_join(
        named, lambda left, right: [left, right], foreign_key=lambda key, text: text[0], name="named"
    )
    joined.to_stream().send_to("out")


def global_table_joined(builder: KStreamBuilder) -> None:
    """Each run sees the table as it was when it began; nothing of it is committed."""
    named = builder.global_table("other", storage="rocksdb")
    joined = builder.stream("in").left_join(
        named, lambda text, name: [text, name], key=lambda key, text: text and text[0]
    )
    joined.send_to("out")


def cogrouped(builder: KStreamBuilder) -> None:
    def add(key: str, text: str, seen: list[str]) -> list[str]:
        return [*seen, text]

    one, other = (builder.stream(topic).group_by_key() for topic in ("in", "other"))
    one.cogroup(add).cogroup(other, lambda key, text, seen: [*seen, text.lower()]).aggregate(
        list, store="together", value_serde=serdes.json()
    ).to_stream().send_to("out")


def sliding(builder: KStreamBuilder) -> None:
    """Windows that end with a record, or begin behind one, held back until they close."""
    windows = builder.stream("in").group_by_key().windowed_by(SlidingWindow(size_ms=20, grace_ms=10))
    counts = windows.count(store="windows").suppress().to_stream()
    named = counts.map(lambda window, count: (window.key, [window.start_ms, count]))
    named.send_to("out")


def kept(builder: KStreamBuilder) -> None:
    """A stream becomes a table, whose derived one is kept in RocksDB."""
    store = StoreSpec(
        name="kept", key_serde=serdes.string(), value_serde=serdes.json(), storage="rocksdb", cached=True
    )
    made = builder.stream("in").to_table(name="made").map_values(lambda text: [text], store=store)
    made.to_stream().send_to("out")


#: What each topology's table holds in the end, worked out by hand.
TABLES: dict[Callable[[KStreamBuilder], None], dict[str, Any]] = {
    tables_joined: {
        "a": ["V8", None],
        "b": ["Y7", "B4"],
        "d": ["V9", None],
        "v": [None, "V5"],
        "y": [None, "Y6"],
    },
    grouped: {"v": 17, "y": 7, "z": 0},
    foreign_keys_joined: {"a": ["v8", "V5"], "b": ["y7", "Y6"], "d": ["v9", "V5"]},
    global_table_joined: {"a": ["v8", "V5"], "b": ["y7", None], "d": ["v9", "V5"], "u": ["v4", "V2"]},
    kept: {"a": ["v8"], "b": ["y7"], "d": ["v9"]},
}
DEFINED = (*TABLES, cogrouped, sliding)
#: One in how many port calls a process dies at in ``dev/test``: there are many.
_STEP = 53
#: One task gives all results of a key, so these come in one order; others come as the last ones do.
IN_ORDER = (tables_joined, global_table_joined, cogrouped, sliding, kept)


def built(define: Callable[[KStreamBuilder], None]) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    define(builder)
    return builder.build()


def runs(define: Callable[[KStreamBuilder], None], calls: Calls) -> CallingRuns:
    plan = built(define).plan("app")
    reads = {*plan.sources, *plan.globals}
    return CallingRuns(lambda: built(define), {at: ARRIVALS[at] for at in reads & ARRIVALS.keys()}, calls)


def table(left: Left) -> dict[str, Any]:
    """Fold the output as a reader of a table does."""
    held: dict[str, Any] = {}
    for records in left.outputs.values():
        for key, value, _, _ in records:
            if value is None:
                held.pop(key.decode(), None)
            else:
                held[key.decode()] = json.loads(value)
    return held


def what_is_wrong(define: Callable[[KStreamBuilder], None], calls: Calls, expected: Left) -> str:
    left = runs(define, calls).run()
    if (left.state, left.committed) != (expected.state, expected.committed):
        return f"state and offsets are {left.state}, {left.committed}"
    if table(left) != table(expected):
        return f"the table is {table(left)}"
    return f"results are {left.outputs}" if define in IN_ORDER and left.outputs != expected.outputs else ""


def undisturbed(define: Callable[[KStreamBuilder], None], calls: Calls) -> Left:
    left = runs(define, calls).run()
    assert left.outputs
    assert table(left) == TABLES.get(define, table(left))
    return left


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("step", [_STEP, pytest.param(1, marks=pytest.mark.prove)])
@pytest.mark.parametrize("define", DEFINED)
@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
def test_runs_leave_the_same_tables_when_a_process_dies_at_any_port_call(
    define: Callable[[KStreamBuilder], None], takes_effect: bool, step: int
) -> None:
    calls = Calls()
    expected = undisturbed(define, calls)
    for number, made in deaths(calls.made, step=step, takes_effect=takes_effect):
        wrong = what_is_wrong(define, Calls(last=number, takes_effect=takes_effect), expected)
        assert not wrong, f"no. {number}, {made}"
