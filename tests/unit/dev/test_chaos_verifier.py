"""The verifier of the chaos rounds is itself shown to catch what it is there for."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dev.chaos_rounds import checks
from dev.chaos_rounds.evidence import Evidence, Row, Seen
from dev.chaos_rounds.topics import (
    APPLICATION_ID,
    CHANGELOGS,
    ECHO,
    METADATA,
    MOVED,
    PAYMENTS,
    REPARTITION,
    RESULTS,
    RUNNING,
    TOTALS,
)
from dev.chaos_rounds.verifier import read_transcript

Logs = dict[str, list[Row]]
RECORDS, STOP_OF_FIRST = 60, 9


class Log:
    """Appends rows to a topic; every third offset of a partition is a transaction marker's."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.rows: list[Row] = []
        self.ends: dict[int, int] = defaultdict(int)

    def append(self, partition: int, key: str, value: Any, headers: dict[str, str] | None = None) -> None:
        text = None if value is None else value if isinstance(value, str) else json.dumps(value)
        self.rows.append(Row(partition, self.ends[partition], key, text, headers or {}))
        self.ends[partition] += 2 if self.ends[partition] % 3 == 0 else 1

    def sorted(self) -> list[Row]:
        return sorted(self.rows, key=lambda row: (row.partition, row.offset))


def sound() -> Evidence:
    """What two runs of the application leave behind, the second with all that the first did not read."""
    rng = random.Random(1)
    logs = {topic: Log(topic) for topic in (PAYMENTS, *RESULTS, *CHANGELOGS.values())}
    numbers: dict[str, int] = defaultdict(int)
    for at in range(RECORDS):
        account = f"account-{rng.randrange(6)}"
        numbers[account] += 1
        value = {
            "id": at,
            "account": account,
            "number": numbers[account],
            "shop": f"shop-{rng.randrange(4)}",
            "kind": f"kind-{rng.randrange(2)}",
            "cents": rng.randrange(1, 100),
        }
        logs[PAYMENTS].append(int(account[-1]) % 3, account, value)
    process(logs)
    ends = {n: logs[PAYMENTS].ends[n] for n in range(3)}
    metadata = metadata_of(ends)
    # What arrived after the last run began is nobody's business yet.
    late = {"id": 999, "account": "account-0", "number": 999, "shop": "shop-1", "kind": "kind-1", "cents": 1}
    logs[PAYMENTS].append(0, "account-0", late)
    seen = [
        Seen(topic, row.partition, row.offset, row.key, row.value)
        for topic in RESULTS
        for row in logs[topic].sorted()
    ]
    committed = {(PAYMENTS, n): ends[n] for n in range(3)}
    committed |= {(MOVED, n): logs[MOVED].ends[n] for n in range(2)} | {
        (REPARTITION, n): 40 for n in range(3)
    }
    spans = {(topic, n): (log.ends[n], log.ends[n]) for topic, log in logs.items() for n in log.ends}
    return Evidence(
        logs={**{topic: log.sorted() for topic, log in logs.items()}, METADATA: metadata},
        ends={**spans, **{(REPARTITION, n): (41, 41) for n in range(3)}},
        committed=committed,
        seen=seen,
        finished=["run-1", "run-2"],
    )


def process(logs: dict[str, Log]) -> None:
    """Do what the application does; totals are emitted at every fifth payment and at the end."""
    for row in logs[PAYMENTS].sorted():
        logs[ECHO].append(row.partition, str(row.key), row.json())
        logs[MOVED].append(int(row.json()["shop"][-1]) % 2, row.json()["shop"], row.json())
    sums: dict[str, dict[str, int]] = {}
    for row in logs[MOVED].sorted():
        paid, shop = row.json(), str(row.key)
        old = sums.get(shop, {"count": 0, "total": 0, "least": 10**6, "most": 0})
        cents = paid["cents"]
        sums[shop] = {
            "last": paid["id"],
            "count": old["count"] + 1,
            "total": old["total"] + cents,
            "least": min(old["least"], cents),
            "most": max(old["most"], cents),
        }
        logs[RUNNING].append(row.partition, shop, sums[shop])
        logs[CHANGELOGS["running"]].append(row.partition, shop, sums[shop])
    totals: dict[str, dict[str, Any]] = {}
    payments = [row.json() for row in logs[PAYMENTS].sorted()]
    dirty: set[str] = set()
    for at, paid in enumerate(payments, start=1):
        kind, cents = paid["kind"], paid["cents"]
        before = totals.get(kind, {"count": 0, "total": 0, "least": 10**6, "most": 0, "numbers": {}})
        totals[kind] = {
            "count": before["count"] + 1,
            "total": before["total"] + cents,
            "least": min(before["least"], cents),
            "most": max(before["most"], cents),
            "numbers": {**before["numbers"], paid["account"]: paid["number"]},
        }
        dirty.add(kind)
        if at % 5 == 0 or at == len(payments):
            for name in sorted(dirty):
                for topic in (TOTALS, CHANGELOGS["totals"]):
                    logs[topic].append(int(name[-1]), name, totals[name])
            dirty.clear()


def metadata_of(ends: dict[int, int]) -> list[Row]:
    log = Log(METADATA)
    starts = dict.fromkeys(range(3), 0)
    for run_id, stops in (("run-1", dict.fromkeys(range(3), STOP_OF_FIRST)), ("run-2", ends)):
        run = {"kstreams.run": run_id}
        for key in sorted({row.key for row in log.rows if row.key}):
            log.append(0, key, None)
        for n in range(3):
            log.append(0, f"{PAYMENTS}_{n}", str(stops[n]), stop_headers(run_id, n, starts[n]))
        for _ in range(2):  # begun, then taken over
            log.append(0, APPLICATION_ID, "0", run)
        for n in range(3):
            headers = {"kstreams.kind": "done", "kstreams.subtopology": "0", "kstreams.group": str(n)}
            log.append(0, f"{APPLICATION_ID}-0_{n}", "done", {**run, **headers})
        for topic, count in ((MOVED, 2), (REPARTITION, 3)):
            for m in range(count):
                headers = {
                    "kstreams.kind": "intermediate stop",
                    "kstreams.topic": topic,
                    "kstreams.partition": str(m),
                }
                log.append(0, f"{topic}_{m}", "5", {**run, **headers})
        log.append(0, APPLICATION_ID, "1", run)
        starts = stops
    return log.rows


def stop_headers(run_id: str, partition: int, start: int) -> dict[str, str]:
    return {
        "kstreams.run": run_id,
        "kstreams.kind": "stop",
        "kstreams.topic": PAYMENTS,
        "kstreams.partition": str(partition),
        "kstreams.start.offset": str(start),
    }


def test_nothing_is_wrong_when_all_is_as_it_should_be() -> None:
    assert checks.verdict(sound()) == []


def lose(topic: str) -> Callable[[Evidence], Evidence]:
    """Take one record of a topic away, and from the transcript, too: nobody ever saw it."""

    def change(evidence: Evidence) -> Evidence:
        logs = dict(evidence.logs)
        gone = logs[topic][7]
        logs[topic] = [row for row in logs[topic] if row is not gone]
        seen = [one for one in evidence.seen if one[:3] != (topic, gone.partition, gone.offset)]
        return dataclasses.replace(evidence, logs=logs, seen=seen)

    return change


def double(topic: str) -> Callable[[Evidence], Evidence]:
    """Write one record of a topic twice, for the transcript, too."""

    def change(evidence: Evidence) -> Evidence:
        logs = dict(evidence.logs)
        again = logs[topic][7]
        end = max(row.offset for row in logs[topic] if row.partition == again.partition) + 1
        rows = [*logs[topic], again._replace(offset=end)]
        logs[topic] = sorted(rows, key=lambda row: (row.partition, row.offset))
        seen = [*evidence.seen, Seen(topic, again.partition, end, again.key, again.value)]
        return dataclasses.replace(evidence, logs=logs, seen=seen)

    return change


def swap(topic: str) -> Callable[[Evidence], Evidence]:
    """Let two neighbouring records of one key change places, for the transcript, too."""

    def change(evidence: Evidence) -> Evidence:
        rows = list(evidence.logs[topic])
        one, other = next(
            (one, other)
            for one, other in itertools.combinations(rows, 2)
            if one.key == other.key and one.json().get("account") == other.json().get("account")
        )
        rows[rows.index(one)] = one._replace(value=other.value)
        rows[rows.index(other)] = other._replace(value=one.value)
        return _with_rows(evidence, topic, rows)

    return change


def spoil(topic: str, field: str) -> Callable[[Evidence], Evidence]:
    """Let one update of an aggregate be wrong, and seen so."""

    def change(evidence: Evidence) -> Evidence:
        rows = list(evidence.logs[topic])
        value = {**rows[2].json(), field: rows[2].json()[field] + 1}
        rows[2] = rows[2]._replace(value=json.dumps(value))
        return _with_rows(evidence, topic, rows)

    return change


def _with_rows(evidence: Evidence, topic: str, rows: list[Row]) -> Evidence:
    there = {(topic, row.partition, row.offset): row for row in rows}
    seen = [one._replace(value=there[one[:3]].value) if one[:3] in there else one for one in evidence.seen]
    return dataclasses.replace(evidence, logs={**evidence.logs, topic: rows}, seen=seen)


def vanish(evidence: Evidence) -> Evidence:
    """Let the follower have seen what is not there."""
    ghost = Seen(ECHO, 0, 10_000, "account-1", "{}")
    return dataclasses.replace(evidence, seen=[*evidence.seen, ghost])


def change_after_seen(evidence: Evidence) -> Evidence:
    """Let the follower have seen another value than the one that is there."""
    seen = [evidence.seen[0]._replace(value="{}"), *evidence.seen[1:]]
    return dataclasses.replace(evidence, seen=seen)


def _metadata(change: Callable[[list[Row]], list[Row]]) -> Callable[[Evidence], Evidence]:
    def changed(evidence: Evidence) -> Evidence:
        return dataclasses.replace(
            evidence, logs={**evidence.logs, METADATA: change(list(evidence.logs[METADATA]))}
        )

    return changed


def _index(rows: list[Row], key: str, value: str | None, nth: int = 0) -> int:
    return [at for at, row in enumerate(rows) if (row.key, row.value) == (key, value)][nth]


@_metadata
def move_stop(rows: list[Row]) -> list[Row]:
    """A take-over freezes another end."""
    at = _index(rows, APPLICATION_ID, "0", 1)
    moved = Row(0, 0, f"{PAYMENTS}_1", str(STOP_OF_FIRST + 2), stop_headers("run-1", 1, 0))
    return [*rows[:at], moved, *rows[at:]]


@_metadata
def delete_stop(rows: list[Row]) -> list[Row]:
    at = _index(rows, APPLICATION_ID, "0", 1)
    return [*rows[:at], Row(0, 0, f"{PAYMENTS}_1", None), *rows[at:]]


@_metadata
def finish_twice(rows: list[Row]) -> list[Row]:
    return [*rows, rows[-1]]


@_metadata
def begin_before_the_end(rows: list[Row]) -> list[Row]:
    del rows[_index(rows, APPLICATION_ID, "1", 0)]
    return rows


@_metadata
def forget_to_notify(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.key != f"{APPLICATION_ID}-0_2"]


@_metadata
def forget_a_stop(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.key != f"{MOVED}_1"]


@_metadata
def move_a_stop_between(rows: list[Row]) -> list[Row]:
    at = _index(rows, f"{MOVED}_1", "5", 0)
    return [*rows[: at + 1], rows[at]._replace(value="6"), *rows[at + 1 :]]


@_metadata
def leave_a_gap(rows: list[Row]) -> list[Row]:
    at = _index(rows, APPLICATION_ID, "1", 0)
    return [
        row._replace(headers={**row.headers, "kstreams.start.offset": "12"})
        if place > at and row.key == f"{PAYMENTS}_0" and row.value is not None
        else row
        for place, row in enumerate(rows)
    ]


def commit_too_little(evidence: Evidence) -> Evidence:
    committed = {**evidence.committed, (PAYMENTS, 1): evidence.committed[(PAYMENTS, 1)] - 1}
    return dataclasses.replace(evidence, committed=committed)


def leave_a_transaction_open(evidence: Evidence) -> Evidence:
    return dataclasses.replace(evidence, ends={**evidence.ends, (TOTALS, 0): (3, 4)})


def let_a_finished_run_be_unknown(evidence: Evidence) -> Evidence:
    return dataclasses.replace(evidence, finished=[*evidence.finished, "run-3"])


def read_past_the_stop(evidence: Evidence) -> Evidence:
    """Echo what belongs to the next run."""
    logs = dict(evidence.logs)
    late = next(row for row in logs[PAYMENTS] if row.json()["id"] == 999)
    rows = [*logs[ECHO], late._replace(offset=500)]
    logs[ECHO] = sorted(rows, key=lambda row: (row.partition, row.offset))
    seen = [*evidence.seen, Seen(ECHO, late.partition, 500, late.key, late.value)]
    return dataclasses.replace(evidence, logs=logs, seen=seen)


def forget_state(evidence: Evidence) -> Evidence:
    """Lose the last change of a store."""
    changelog = CHANGELOGS["totals"]
    return dataclasses.replace(
        evidence, logs={**evidence.logs, changelog: list(evidence.logs[changelog])[:-1]}
    )


def stray(evidence: Evidence) -> Evidence:
    """Put one record of a key into another partition."""
    rows = list(evidence.logs[ECHO])
    rows[0] = rows[0]._replace(partition=2, offset=700)
    seen = [one for one in evidence.seen if one[:3] != (ECHO, 0, evidence.logs[ECHO][0].offset)]
    seen.append(Seen(ECHO, 2, 700, rows[0].key, rows[0].value))
    return dataclasses.replace(evidence, logs={**evidence.logs, ECHO: rows}, seen=seen)


@pytest.mark.parametrize(
    ("corrupt", "told"),
    [
        (lose(ECHO), "echo_is_the_input: chaos-echo, account-.: lost"),
        (lose(MOVED), "moved_is_the_input_by_shop: .* lost"),
        (lose(RUNNING), "running_sums_are_recomputed: .* lost"),
        (forget_state, "state_is_what_was_written: chaos-totals-changelog and chaos-totals end differently"),
        (double(ECHO), "echo_is_the_input: .* more than once"),
        (double(MOVED), "moved_is_the_input_by_shop: .* more than once"),
        (double(RUNNING), "running_sums_are_recomputed: .* more than once"),
        (double(TOTALS), "totals_are_recomputed: "),
        (swap(ECHO), "echo_is_the_input: chaos-echo, account-.: expected .* in its place"),
        (swap(MOVED), "moved_is_the_input_by_shop: .* in its place"),
        (swap(RUNNING), "running_sums_are_recomputed: .* in its place"),
        (spoil(RUNNING, "total"), "running_sums_are_recomputed: .* in its place"),
        (spoil(RUNNING, "least"), "running_sums_are_recomputed: .* in its place"),
        (spoil(TOTALS, "total"), "totals_are_recomputed: chaos-totals-.@.*, kind-.: found"),
        (spoil(TOTALS, "most"), "totals_are_recomputed: chaos-totals-.@.*, kind-.: found"),
        (spoil(TOTALS, "count"), "totals_are_recomputed: chaos-totals-.@.*, kind-.: found"),
        (read_past_the_stop, "echo_is_the_input: chaos-echo, account-0: not of this input 999"),
        (stray, "echo_is_the_input: chaos-echo, account-.: in partitions"),
        (vanish, "nothing_seen_is_gone: chaos-echo-0@10000 .* was seen and is gone"),
        (change_after_seen, "nothing_seen_is_gone: .* was seen as .*, and is"),
        (move_stop, r"stop offset of \('chaos-payments', 1\) moved after run run-1 had begun"),
        (delete_stop, "run run-1 was not finished when chaos-payments_1 was deleted"),
        (finish_twice, "run run-2 has 2 finished markers"),
        (begin_before_the_end, "run run-2 wrote a marker while run run-1 was not finished"),
        (forget_to_notify, "upstream_notified: run run-1 finished without the notifications of tasks 2"),
        (forget_a_stop, "upstream_notified: run run-1 finished without the stops of .*chaos-moved', 1"),
        (move_a_stop_between, "run run-1 moved the stop of .*chaos-moved', 1.* from 5 to 6"),
        (leave_a_gap, "slices_join: run run-2"),
        (commit_too_little, "offsets_are_at_their_stops: .*chaos-payments"),
        (leave_a_transaction_open, "nothing_is_left_open: chaos-totals-0"),
        (let_a_finished_run_be_unknown, r"runs_are_finished: .*\['run-3'\]"),
    ],
    ids=lambda value: "" if callable(value) else value.split(":")[0][:40],
)
def test_wrong_is_found_when_there_is_any(corrupt: Callable[[Evidence], Evidence], told: str) -> None:
    wrong = checks.verdict(corrupt(sound()))
    assert any(re.search(told, text) for text in wrong), wrong


def test_transcript_is_read_up_to_the_line_that_is_being_written(tmp_path: Path) -> None:
    file = tmp_path / "transcript"
    assert read_transcript(file) == []
    file.write_text('["chaos-echo", 0, 3, "a", "{}"]\n["chaos-echo", 0, 4, null, null]\n["chaos-ec')
    assert read_transcript(file) == [Seen(ECHO, 0, 3, "a", "{}"), Seen(ECHO, 0, 4, None, None)]
