"""The rounds with tables: what is drawn, and that their verifier catches what it is there for."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from dev.chaos_rounds.evidence import Evidence, Row, Seen
from dev.chaos_rounds.families import TABLES as TABLE_ROUNDS
from dev.chaos_rounds.families import TOPICS as TOPIC_ROUNDS
from dev.chaos_rounds.families import chosen
from dev.chaos_rounds.plan import Fault
from dev.chaos_rounds.tables.checks import table_verdict
from dev.chaos_rounds.tables.lake import FoundTable, Snapshot
from dev.chaos_rounds.tables.names import KEY_COLUMN, TABLE_FILES, TABLES, TableName
from dev.chaos_rounds.tables.plan import TableFault, place_of, table_plan_of
from dev.chaos_rounds.tables.strikes import STRIKES
from dev.chaos_rounds.topics import APPLICATION_ID, ECHO, METADATA, PAYMENTS

PARTITIONS, OF_FIRST, OF_ALL = range(3), 4, 9
RUNS = {"run-1": (0, OF_FIRST), "run-2": (OF_FIRST, OF_ALL)}
APPENDED, UPSERTED = TableName("iceberg", "payments"), TableName("delta", "accounts")


# The draw


def test_round_is_the_same_when_it_is_drawn_again_and_at_one_place_in_all_draws() -> None:
    for number in range(30):
        plans = [table_plan_of(7, number, draw) for draw in range(6)]
        assert plans[1] == table_plan_of(7, number, 1)
        assert {(plan.fault, plan.place) for plan in plans} == {(plans[0].fault, place_of(7, number))}


def test_every_fault_comes_once_in_each_block_and_each_moment_at_each_table() -> None:
    size = len(TableFault)
    for block in range(3):
        plans = [table_plan_of(7, block * size + place) for place in range(size)]
        assert {plan.fault for plan in plans} == set(TableFault)
    assert STRIKES.keys() == set(TableFault)
    many = [table_plan_of(1, number) for number in range(1_200)]
    assert {plan.place for plan in many} == {"sql", "rest"}
    for moment in ("commit", "answer"):
        assert {plan.table for plan in many if plan.moment == moment} == set(TABLES)


@pytest.mark.parametrize("word", ["table", "table: "])
def test_word_table_asks_for_all_rounds_with_tables(word: str) -> None:
    assert chosen([word]) == (TABLE_ROUNDS, frozenset(TableFault))


def test_whole_name_asks_for_one_fault_and_no_pattern_for_all_of_topics() -> None:
    assert chosen(["broker killed"]) == (TOPIC_ROUNDS, frozenset({Fault.BROKER_KILLED}))
    assert chosen(["commit late"]) == (TABLE_ROUNDS, frozenset({TableFault.COMMIT_LATE}))
    assert chosen([]) == (TOPIC_ROUNDS, frozenset(Fault))
    assert TABLE_ROUNDS.numbers(7, 3, 2, frozenset({TableFault.COMMIT_LATE}))[0] >= 3


@pytest.mark.parametrize(("pattern", "said"), [("tabel", "no fault"), ("killed", "share no scene")])
def test_pattern_is_refused_when_it_names_no_fault_or_those_of_both_families(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        chosen([pattern])


def test_rounds_of_each_place_are_of_one_scene() -> None:
    scenes = [numbers for _, numbers in TABLE_ROUNDS.scenes(7, range(24))]
    assert sorted(number for numbers in scenes for number in numbers) == list(range(24))
    assert all(len({place_of(7, number) for number in numbers}) == 1 for numbers in scenes)


# The verdict


def payment(partition: int, offset: int) -> dict[str, Any]:
    number = partition * 100 + offset
    account = f"account-{partition}{offset % 2}"
    return {"id": number, "account": account, "number": offset, "shop": "s", "kind": "k", "cents": 5}


def sound() -> Evidence:
    """What two runs leave in Kafka; one more payment is behind the last stop."""
    paid = [
        Row(n, at, payment(n, at)["account"], json.dumps(payment(n, at)))
        for n in PARTITIONS
        for at in range(OF_ALL + 1)
    ]
    echo = [row for row in paid if row.offset < OF_ALL]
    committed = {(PAYMENTS, n): OF_ALL for n in PARTITIONS} | {(TABLE_FILES, 0): 9}
    return Evidence(
        logs={PAYMENTS: paid, ECHO: echo, METADATA: metadata(), **{topic: [] for topic in _EMPTY}},
        ends={(TABLE_FILES, 0): (10, 10), **{(ECHO, n): (OF_ALL, OF_ALL) for n in PARTITIONS}},
        committed=committed,
        seen=[Seen(ECHO, *row[:4]) for row in echo],
        finished=list(RUNS),
    )


_EMPTY = ("chaos-moved", "chaos-running", "chaos-totals")


def metadata() -> list[Row]:
    rows: list[Row] = []

    def write(key: str, value: str | None, **headers: str) -> None:
        rows.append(Row(0, len(rows), key, value, {f"kstreams.{k}": v for k, v in headers.items()}))

    for run_id, (start, stop) in RUNS.items():
        for key in sorted({row.key for row in rows if row.key}):
            write(key, None)
        for n in PARTITIONS:
            said = {"run": run_id, "kind": "stop", "topic": PAYMENTS, "partition": str(n)}
            write(f"{PAYMENTS}_{n}", str(stop), **said, **{"start.offset": str(start)})
        write(APPLICATION_ID, "0", run=run_id)
        for n in PARTITIONS:
            write(f"chaos-0_{n}", "done", run=run_id, kind="done", subtopology="0", group=str(n))
        said = {"run": run_id, "kind": "intermediate stop", "topic": TABLE_FILES, "partition": "0"}
        write(f"{TABLE_FILES}_0", "9", **said)
        write(APPLICATION_ID, "1", run=run_id)
    return rows


def appended() -> FoundTable:
    rows = [
        {**payment(n, at), "_topic": PAYMENTS, "_partition": n, "_offset": at, "_run": run_id}
        for run_id, (start, stop) in RUNS.items()
        for n in PARTITIONS
        for at in range(start, stop)
    ]
    runs_of_files = {f"file-{run_id}": {run_id} for run_id in RUNS}
    return FoundTable(
        name=APPENDED, rows=rows, snapshots=snapshots(), mark=2, missing=[], runs_of_files=runs_of_files
    )


def upserted() -> FoundTable:
    rows = {}
    for n in PARTITIONS:
        for at in range(OF_ALL):
            paid = payment(n, at)
            rows[paid["account"]] = {**paid, KEY_COLUMN: paid["account"]}
    return FoundTable(
        name=UPSERTED, rows=list(rows.values()), snapshots=snapshots(), mark=2, missing=[], runs_of_files={}
    )


def snapshots() -> list[Snapshot]:
    return [
        Snapshot(
            number=number,
            summary={
                "kstreams.application-id": APPLICATION_ID,
                "kstreams.run-id": run_id,
                "kstreams.sequence": str(number),
                "kstreams.offsets": json.dumps({f"{PAYMENTS}-{n}": list(span) for n in PARTITIONS}),
            },
            added=frozenset({f"file-{run_id}"}),
        )
        for number, (run_id, span) in enumerate(RUNS.items(), start=1)
    ]


def test_nothing_is_wrong_when_all_is_as_it_should_be() -> None:
    assert table_verdict(sound(), [appended(), upserted()]) == []


def test_commit_of_another_writer_is_none_of_a_runs() -> None:
    table, others = appended(), Snapshot(number=3, summary={}, added=frozenset({"other"}))
    row = {**table.rows[0], "id": -1, "_partition": None, "_offset": None, "_run": "other-3"}
    with_others = dataclasses.replace(
        table, rows=[*table.rows, row], snapshots=[*table.snapshots[:1], others, *table.snapshots[1:]]
    )
    assert table_verdict(sound(), [with_others]) == []
    lost = dataclasses.replace(with_others, rows=table.rows)
    assert "rows_of_others_are_there" in table_verdict(sound(), [lost])[0]


def _rows(
    change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]],
) -> Callable[[FoundTable], FoundTable]:
    return lambda table: dataclasses.replace(table, rows=change(list(table.rows)))


def _snapshots(change: Callable[[list[Snapshot]], list[Snapshot]]) -> Callable[[FoundTable], FoundTable]:
    return lambda table: dataclasses.replace(table, snapshots=change(list(table.snapshots)))


def _saying(snapshot: Snapshot, **said: str) -> Snapshot:
    summary = {
        **snapshot.summary,
        **{f"kstreams.{name.replace('_', '-')}": text for name, text in said.items()},
    }
    return dataclasses.replace(snapshot, summary=summary)


CORRUPTED: dict[str, tuple[str, Callable[[FoundTable], FoundTable]]] = {
    "a row is lost": ("rows_are_the_input", _rows(lambda rows: rows[1:])),
    "a row comes twice": ("rows_are_the_input", _rows(lambda rows: [*rows, rows[0]])),
    "a value is wrong": ("rows_are_the_input", _rows(lambda rows: [{**rows[0], "cents": 6}, *rows[1:]])),
    "a run landed twice": (
        "every_run_landed_once",
        _snapshots(lambda made: [*made, _saying(made[1], sequence="3")]),
    ),
    "a run has no snapshot": ("every_run_landed_once", _snapshots(lambda made: made[:1])),
    "a strange run landed": (
        "every_run_landed_once",
        _snapshots(lambda made: [*made, _saying(made[1], sequence="3", run_id="run-3")]),
    ),
    "runs landed in another order": ("every_run_landed_once", _snapshots(lambda made: made[::-1])),
    "a sequence is left out": (
        "sequences_have_no_gap",
        _snapshots(lambda made: [made[0], _saying(made[1], sequence="3")]),
    ),
    "the mark is behind": ("sequences_have_no_gap", lambda table: dataclasses.replace(table, mark=1)),
    "a summary says another slice": (
        "snapshots_say_their_slice",
        _snapshots(lambda made: [made[0], _saying(made[1], offsets="{}")]),
    ),
    "a file is missing": ("no_file_is_missing", lambda table: dataclasses.replace(table, missing=["gone"])),
}


@pytest.mark.parametrize("made", [appended, upserted])
@pytest.mark.parametrize("corruption", CORRUPTED)
def test_table_is_refused_when_it_is_corrupted(corruption: str, made: Callable[[], FoundTable]) -> None:
    check, corrupted = CORRUPTED[corruption]
    found = table_verdict(sound(), [corrupted(made())])
    assert [text for text in found if text.startswith(check)], found


def test_row_of_a_later_run_and_file_of_a_dropped_attempt_are_found() -> None:
    table = appended()
    rows = [{**table.rows[0], "_run": "run-2"}, *table.rows[1:]]
    found = table_verdict(sound(), [dataclasses.replace(table, rows=rows)])
    assert [text.partition(",")[0] for text in found] == ["rows_name_their_run"]
    mixed = {**table.runs_of_files, "file-run-2": {"run-1", "run-2"}}
    found = table_verdict(sound(), [dataclasses.replace(table, runs_of_files=mixed)])
    assert [text.partition(",")[0] for text in found] == ["files_are_of_their_run"]


@pytest.mark.parametrize("key", [f"{TABLE_FILES}_0", "chaos-0_2"])
def test_run_is_refused_when_a_task_or_the_list_of_files_was_left_out(key: str) -> None:
    evidence = sound()
    rows = [row for row in evidence.logs[METADATA] if row.key != key]
    found = table_verdict(dataclasses.replace(evidence, logs={**evidence.logs, METADATA: rows}), [])
    assert [text for text in found if text.startswith("upstream_notified")]
