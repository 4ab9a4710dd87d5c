"""What must hold of every history. Written apart from the engine: from the specification and the oracle.

Each checker takes the history and raises ``ViolationError`` with what it found.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from airflow_kstreams.streams.ports import TopicPartition
from tests.simulation.call_checks import (
    calls_are_within_bounds,
    calls_of_a_key_are_in_order,
    each_record_takes_effect_once,
    records_are_given_up_after_their_last_call,
)
from tests.simulation.counts import counts_are_exact, counts_by_topic_are_exact
from tests.simulation.expectations import Expectations, ViolationError
from tests.simulation.history import LEDGER, Entry, History
from tests.simulation.landing_checks import (
    ledger_tells_what_landed,
    runs_are_in_their_tables_once,
    tables_hold_what_runs_read,
)
from tests.simulation.machines import FASTEST
from tests.simulation.parked_checks import (
    each_record_is_somewhere,
    parked_records_are_bounded,
    runs_say_what_is_parked,
)
from tests.simulation.stage_checks import check_stage, dead_letters_are_exact
from tests.simulation.stages import APPLICATION_ID

Checker = Callable[[History, Expectations], None]


def stops_never_move(history: History, expected: Expectations) -> None:
    """A run's stop offsets are the ones it began with; a new run begins only when the last is finished."""
    stops: dict[str, str] = {}
    frozen: dict[str, dict[str, str]] = {}
    running = ""
    for entry in _by_commit(history.metadata):
        if entry.key == APPLICATION_ID and entry.value == "0":
            run_id = entry.headers["kstreams.run"]
            if running and running != run_id:
                raise ViolationError(f"run {run_id} began while run {running} was not finished")
            running = run_id
            if frozen.setdefault(run_id, dict(stops)) != stops:
                raise ViolationError(f"stops of run {run_id} moved from {frozen[run_id]} to {stops}")
        elif entry.key == APPLICATION_ID and entry.value == "1":
            running = ""
        elif entry.value is None:
            stops.pop(entry.key, None)
        elif entry.headers.get("kstreams.kind") == "stop":
            stops[entry.key] = entry.value


def finished_once(history: History, expected: Expectations) -> None:
    """Every run has one finished marker and one ledger entry, together."""
    markers = [
        (entry.headers["kstreams.run"], entry.commit)
        for entry in history.metadata
        if entry.key == APPLICATION_ID and entry.value == "1"
    ]
    entries = [(run.run_id, run.commit) for run in history.finished]
    if sorted(markers) != sorted(entries):
        raise ViolationError(f"finished markers {markers}, ledger entries {entries}")
    twice = [run_id for run_id, count in Counter(run_id for run_id, _ in markers).items() if count > 1]
    if twice:
        raise ViolationError(f"finished more than once: {twice}")
    missing = expected.run_ids - {run_id for run_id, _ in entries}
    if missing:
        raise ViolationError(f"a scheduler saw runs succeed that are not finished: {sorted(missing)}")


def slices_join(history: History, expected: Expectations) -> None:
    """Each run starts where the last one stopped: no gap, no overlap."""
    ends: dict[TopicPartition, int] = {}
    for run in history.finished:
        for partition, (start, stop) in run.spans.items():
            if start != ends.get(partition, 0) or stop < start:
                raise ViolationError(
                    f"run {run.run_id} read {partition} [{start}, {stop}), the last ended at "
                    f"{ends.get(partition, 0)}"
                )
            ends[partition] = stop
        for partition, stop in run.intermediate_stops.items():
            if stop < ends.get(partition, 0):
                raise ViolationError(f"run {run.run_id} stopped {partition} at {stop}, before the last one")
            ends[partition] = stop


def offsets_reach_their_stops(history: History, expected: Expectations) -> None:
    """Committed offsets never go back, and stand at the stops when the finished marker is written."""
    at: dict[TopicPartition, int] = {}
    finished = {run.commit: run for run in history.finished}
    commits = defaultdict(list)
    for commit in history.offsets:
        commits[commit.commit].append(commit)
    for number in range(len(history.commits)):
        for commit in commits.get(number, ()):
            if commit.offset < at.get(commit.partition, 0):
                raise ViolationError(
                    f"committed offset of {commit.partition} went back from {at[commit.partition]} to "
                    f"{commit.offset}"
                )
            at[commit.partition] = commit.offset
        run = finished.get(number)
        if run is None:
            continue
        stops = {partition: stop for partition, (_, stop) in run.spans.items()} | run.intermediate_stops
        wrong = {str(tp): (at.get(tp), stop) for tp, stop in stops.items() if at.get(tp) != stop}
        if wrong:
            raise ViolationError(f"run {run.run_id} finished with offsets other than its stops: {wrong}")


def notifications_are_complete(history: History, expected: Expectations) -> None:
    """A stop of an intermediate partition comes after the notifications of all tasks that write there, and
    never moves; at the finished marker every one has its stop.
    """
    live: dict[str, Entry] = {}
    frozen: dict[tuple[str, str], str | None] = {}
    runs = {run.run_id: run for run in history.finished}
    for entry in _by_commit(history.metadata):
        run_id = entry.headers.get("kstreams.run", "")
        if entry.key != APPLICATION_ID:
            live.pop(entry.key, None)
            if entry.value is not None:
                live[entry.key] = entry
            if entry.headers.get("kstreams.kind") == "intermediate stop":
                if frozen.setdefault((run_id, entry.key), entry.value) != entry.value:
                    raise ViolationError(f"run {run_id} moved the stop {entry.key} to {entry.value}")
                _refuse_early_stop(entry, live, expected)
            continue
        if entry.value != "1" or history.is_empty(runs[run_id]):
            continue
        for tp in _between(expected):
            found = live.get(f"{tp.topic}_{tp.partition}")
            if found is None or found.headers.get("kstreams.run") != run_id:
                raise ViolationError(f"run {run_id} finished without a stop for {tp}")
            if int(found.value or 0) > runs[run_id].intermediate_stops.get(tp, -1):
                raise ViolationError(f"run {run_id} stopped before the stop of {tp}")


def _refuse_early_stop(stop: Entry, live: Mapping[str, Entry], expected: Expectations) -> None:
    """Refuse a stop that was frozen before all tasks that write the topic had notified."""
    for number, (sources, written) in enumerate(expected.application.subtopologies):
        if stop.headers["kstreams.topic"] not in written:
            continue
        for group in range(max(expected.partitions[topic] for topic in sources)):
            key = f"{APPLICATION_ID}-{number}_{group}"
            found = live.get(key)
            told = None if found is None else (found.value, found.headers.get("kstreams.run"))
            if told != ("done", stop.headers["kstreams.run"]):
                raise ViolationError(f"{stop.key} was frozen without the notification {key}: {told}")


def _between(expected: Expectations) -> list[TopicPartition]:
    topics = {topic for _, written in expected.application.subtopologies for topic in written}
    return [TopicPartition(topic, n) for topic in sorted(topics) for n in range(expected.partitions[topic])]


def stops_cover_what_was_written(history: History, expected: Expectations) -> None:
    """All that a run's tasks wrote to an intermediate topic lies before its stop: the run reads it."""
    if not expected.exactly_once:
        return  # an attempt that was given up may still write, and nothing fences it
    for run in history.finished:
        for partition, stop in run.intermediate_stops.items():
            for entry in history.logs.get(partition, ()):
                ours = (partition.topic, entry.value) not in expected.outsiders
                if ours and entry.commit < run.commit and entry.offset >= stop:
                    raise ViolationError(
                        f"run {run.run_id} stopped {partition} at {stop} and left {entry.value!r} at "
                        f"{entry.offset} to the next"
                    )


def slices_are_final(history: History, expected: Expectations) -> None:
    """Nothing in a slice was still undecided when the run began."""
    begun = history.begun
    for run in history.finished:
        for partition, (start, stop) in run.spans.items():
            for entry in history.logs.get(partition, ()):
                if start <= entry.offset < stop and entry.commit > begun[run.run_id]:
                    raise ViolationError(
                        f"run {run.run_id} read {partition}@{entry.offset}, which was undecided when it began"
                    )


def global_tables_are_frozen_at_begin(history: History, expected: Expectations) -> None:
    """A run sees global tables from their topics' start, with all that could be read when a scheduler first
    started it, and with nothing that was still undecided when it began.
    """
    begun = history.begun
    for run in history.finished:
        for topic, spans in run.global_spans.items():
            for number, (start, stop) in enumerate(spans):
                partition = TopicPartition(topic, number)
                seen = [e for e in history.logs.get(partition, ()) if start <= e.offset < stop]
                late = [entry.offset for entry in seen if entry.commit > begun[run.run_id]]
                if start or late or stop < expected.readable.get(run.run_id, {}).get(partition, 0):
                    raise ViolationError(
                        f"run {run.run_id} saw {partition} [{start}, {stop}), undecided when it began: {late}"
                    )


def intervals_cut_the_log(history: History, expected: Expectations) -> None:
    """A run reads nothing dated past its interval's end, and stops only before such a record, or at the end
    of what could be read.
    """
    for run in history.finished:
        interval = expected.intervals.get(run.run_id)
        if interval is None:
            continue
        for partition, (start, stop) in run.spans.items():
            log = history.logs.get(partition, ())
            read = [entry for entry in log if start <= entry.offset < stop]
            left = [entry for entry in log if stop <= entry.offset < interval.readable[partition]]
            wrong = [entry for entry in read if entry.timestamp_ms >= interval.end_ms]
            wrong += [entry for entry in left[:1] if entry.timestamp_ms < interval.end_ms]
            if wrong:
                raise ViolationError(
                    f"run {run.run_id} up to {interval.end_ms} read {partition} [{start}, {stop}); "
                    f"{wrong[0].offset} is dated {wrong[0].timestamp_ms}"
                )


def leases_are_respected(history: History, expected: Expectations) -> None:
    """Nobody takes a lease that was renewed within its time, except a newer attempt of the same run. What its
    record says of an end is by its owner's clock and counts for nothing, but for a release; a forced reset
    takes a lease from anybody.
    """
    held: dict[str, Any] = {}
    renewed_ms = 0
    for entry in history.topic(LEDGER).get(0, []):
        if entry.key != "__lease__":
            continue
        if entry.value is None:
            held = {}  # a forced reset took it from its owner
            continue
        lease = json.loads(entry.value)
        same = held and lease["owner"] == held["owner"]
        newer = held and lease["owner_run_id"] == held["owner_run_id"] and lease["order"] > held["order"]
        at_ms = history.commits[entry.commit].at_ms
        free = not held or held["expires_ms"] == 0 or at_ms - renewed_ms >= held["lease_ms"] / FASTEST
        if not (same or newer or free):
            raise ViolationError(f"{lease['owner']} took the lease that {held['owner']} held")
        held, renewed_ms = lease, at_ms


def outputs_are_exact(history: History, expected: Expectations) -> None:
    """What each stage wrote is what its oracle says of what the finished runs read."""
    for stage in expected.application.stages:
        check_stage(stage, history, expected)


CHECKERS: tuple[Checker, ...] = (
    stops_never_move,
    finished_once,
    slices_join,
    offsets_reach_their_stops,
    notifications_are_complete,
    stops_cover_what_was_written,
    slices_are_final,
    global_tables_are_frozen_at_begin,
    intervals_cut_the_log,
    leases_are_respected,
    runs_say_what_is_parked,
    parked_records_are_bounded,
    each_record_is_somewhere,
    outputs_are_exact,
    dead_letters_are_exact,
    counts_are_exact,
    counts_by_topic_are_exact,
    calls_are_within_bounds,
    each_record_takes_effect_once,
    calls_of_a_key_are_in_order,
    records_are_given_up_after_their_last_call,
    runs_are_in_their_tables_once,
    tables_hold_what_runs_read,
    ledger_tells_what_landed,
)


def check(history: History, expected: Expectations) -> None:
    """Run every checker.

    :raises ViolationError: the first violation.
    """
    for checker in CHECKERS:
        checker(history, expected)


def _by_commit(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry.commit, entry.offset))
