"""What must hold after every round, judged from evidence alone, in the way of Kafka's own EosTestDriver.

Each check takes the evidence and the runs that it tells of, and yields what is wrong. None knows how the
engine works: they know the input, what the application means, and KIP-95's metadata records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dev.chaos_rounds.evidence import Evidence, Partition, Payment, Row, Run, by_key, payment_of, runs_of
from dev.chaos_rounds.topics import (
    CHANGELOGS,
    ECHO,
    METADATA,
    MOVED,
    PARTITIONS,
    PAYMENTS,
    REPARTITION,
    RESULTS,
    RUNNING,
    RUNNING_STORE,
    TOTALS,
    TOTALS_STORE,
)

Check = Callable[[Evidence, Sequence[Run]], Iterator[str]]
_SHOWN = 5


def verdict(evidence: Evidence, checks: Sequence[Check] | None = None) -> list[str]:
    """Return what is wrong, of each kind the first few; nothing is what it should be.

    :param checks: None for all of this module.
    """
    runs, wrong = runs_of(evidence.logs[METADATA])
    if not runs:
        return [*wrong, "the metadata topic tells of no run"]
    for check in CHECKS if checks is None else checks:
        found = [f"{check.__name__}: {what}" for what in check(evidence, runs)]
        wrong += found[:_SHOWN]
        if len(found) > _SHOWN:
            wrong.append(f"{check.__name__}: and {len(found) - _SHOWN} more")
    return wrong


def inputs_are_sound(evidence: Evidence, runs: Sequence[Run]) -> Iterator[str]:
    """The feeder did its part: ids are unique and each account counts upwards. Else nothing can be judged."""
    ids = Counter(payment_of(row).id for row in evidence.logs[PAYMENTS])
    if doubled := [number for number, count in ids.items() if count > 1]:
        yield f"the feeder wrote {_some(doubled)} more than once"
    for account, rows in by_key(evidence.logs[PAYMENTS]).items():
        numbers = [payment_of(row).number for row in rows]
        if numbers != sorted(numbers):
            yield f"the feeder wrote the payments of {account} out of order"


def runs_are_finished(evidence: Evidence, runs: Sequence[Run]) -> Iterator[str]:
    """Every run that a driver called finished has one finished marker, and so has every run that began."""
    for run in runs:
        if run.finished != 1:
            yield f"run {run.run_id} has {run.finished} finished markers"
    if missing := set(evidence.finished) - {run.run_id for run in runs}:
        yield f"a driver reported runs as finished that never began: {sorted(missing)}"


def slices_join(evidence: Evidence, runs: Sequence[Run]) -> Iterator[str]:
    """Each run covers every input partition and starts where the last one stopped."""
    ends = {(PAYMENTS, number): 0 for number in range(PARTITIONS[PAYMENTS])}
    for run in runs:
        if run.spans.keys() != ends.keys():
            yield f"run {run.run_id} froze {sorted(run.spans)}"
        for partition, (start, stop) in run.spans.items():
            if start != ends.get(partition) or stop < start:
                before = ends.get(partition)
                yield f"run {run.run_id} has {partition} [{start}, {stop}), the last one ended at {before}"
            ends[partition] = stop


def offsets_are_at_their_stops(evidence: Evidence, runs: Sequence[Run]) -> Iterator[str]:
    """Committed offsets stand at the last run's stops; between at theirs or past them, not past the log."""
    for partition, stop in last_stops(runs).items():
        if (offset := evidence.committed.get(partition)) != stop:
            yield f"the committed offset of {partition} is {offset}, its stop {stop}"
    for partition, stop in runs[-1].between.items():
        offset, high = evidence.committed.get(partition, -1), evidence.ends[partition][1]
        if not stop <= offset <= high:
            yield f"the committed offset of {partition} is {offset}, its stop {stop}, log end {high}"


def upstream_notified(evidence: Evidence, runs: Sequence[Run]) -> Iterator[str]:
    """In a run that had records, the task of each input partition notified, and each partition of both topics
    between has a stop.
    """
    tasks = set(range(PARTITIONS[PAYMENTS]))
    wanted = {
        (topic, number)
        for topic, count in ((MOVED, PARTITIONS[MOVED]), (REPARTITION, PARTITIONS[PAYMENTS]))
        for number in range(count)
    }
    for run in runs:
        had_records = any(
            run.spans[(PAYMENTS, row.partition)][0] <= row.offset < run.spans[(PAYMENTS, row.partition)][1]
            for row in evidence.logs[PAYMENTS]
            if (PAYMENTS, row.partition) in run.spans
        )
        if had_records and (missing := wanted - run.between.keys()):
            yield f"run {run.run_id} finished without the stops of {_some(sorted(missing))}"
        if had_records and (silent := tasks - {group for _, group in run.done}):
            yield f"run {run.run_id} finished without the notifications of tasks {_some(sorted(silent))}"


def echo_is_the_input(evidence: Evidence, runs: Sequence[Run]) -> Iterator[str]:
    """``chaos-echo`` holds each payment below the stops once, in order for each account, and nothing else."""
    expected = _grouped(evidence.payments(last_stops(runs)), lambda paid: paid.account)
    found = {key: [payment_of(row) for row in rows] for key, rows in by_key(evidence.logs[ECHO]).items()}
    yield from _compare(ECHO, expected, found)
    yield from _one_partition_per_key(evidence, ECHO)


def moved_is_the_input_by_shop(evidence: Evidence, runs: Sequence[Run]) -> Iterator[str]:
    """``chaos-moved`` holds each payment once under its shop, those of one account in their order."""
    expected = _grouped(evidence.payments(last_stops(runs)), lambda paid: (paid.shop, paid.account))
    found: dict[Any, list[Payment]] = defaultdict(list)
    for row in evidence.logs[MOVED]:
        found[(row.key, payment_of(row).account)].append(payment_of(row))
    yield from _compare(MOVED, expected, found)
    yield from _one_partition_per_key(evidence, MOVED)


def running_sums_are_recomputed(evidence: Evidence, runs: Sequence[Run]) -> Iterator[str]:
    """``chaos-running`` holds the sums after every single record of ``chaos-moved``, in its order."""
    expected: dict[Any, list[Any]] = {}
    for shop, rows in by_key(evidence.logs[MOVED]).items():
        paid = [payment_of(row) for row in rows]
        cents = [one.cents for one in paid]
        total, least, most = 0, cents[0], cents[0]
        expected[shop] = []
        for count, one in enumerate(paid, start=1):
            total, least, most = total + one.cents, min(least, one.cents), max(most, one.cents)
            expected[shop].append(
                {"last": one.id, "count": count, "total": total, "least": least, "most": most}
            )
    found = {key: [row.json() for row in rows] for key, rows in by_key(evidence.logs[RUNNING]).items()}
    yield from _compare(RUNNING, expected, found, identity=lambda sums: sums["last"])
    yield from _one_partition_per_key(evidence, RUNNING)


def totals_are_recomputed(evidence: Evidence, runs: Sequence[Run]) -> Iterator[str]:
    """Each update in ``chaos-totals`` is the fold of exactly the payments that it names, each names more than
    the one before, and the last names all.
    """
    paid = _grouped(evidence.payments(last_stops(runs)), lambda one: one.kind)
    updates = by_key(evidence.logs[TOTALS])
    if paid.keys() != updates.keys():
        yield f"{TOTALS} has {sorted(map(str, updates))}, the input {sorted(paid)}"
    for kind, rows in updates.items():
        yield from _fold_of(str(kind), paid.get(kind, []), rows)
    yield from _one_partition_per_key(evidence, TOTALS)


def state_is_what_was_written(evidence: Evidence, runs: Sequence[Run]) -> Iterator[str]:
    """The last value of each key in a changelog is the last one in the store's output topic."""
    for store, output in ((RUNNING_STORE, RUNNING), (TOTALS_STORE, TOTALS)):
        states = {row.key: row.json() for row in evidence.logs[CHANGELOGS[store]]}
        written = {row.key: row.json() for row in evidence.logs[output]}
        if differing := [
            str(key) for key in states.keys() | written.keys() if states.get(key) != written.get(key)
        ]:
            yield f"{CHANGELOGS[store]} and {output} end differently for {_some(sorted(differing))}"


def nothing_seen_is_gone(evidence: Evidence, runs: Sequence[Run]) -> Iterator[str]:
    """Whatever the follower saw is still there, unchanged; it saw all, once, and never went back."""
    final = {(topic, row.partition, row.offset): row for topic in RESULTS for row in evidence.logs[topic]}
    last: dict[Partition, int] = {}
    for topic, partition, offset, key, value in evidence.seen:
        row = final.pop((topic, partition, offset), None)
        if offset <= last.get((topic, partition), -1):
            yield f"the follower read {topic}-{partition}@{offset} after {last[(topic, partition)]}"
        elif row is None:
            yield f"{topic}-{partition}@{offset} ({key}: {value}) was seen and is gone"
        elif (row.key, row.value) != (key, value):
            yield f"{topic}-{partition}@{offset} was seen as {key}: {value}, and is {row.key}: {row.value}"
        last[(topic, partition)] = offset
    if final:
        yield f"{len(final)} committed records were never seen, such as {_some(sorted(final))}"


def nothing_is_left_open(evidence: Evidence, runs: Sequence[Run]) -> Iterator[str]:
    """No transaction is open any more on what the application writes."""
    for (topic, number), (stable, high) in evidence.ends.items():
        if topic != PAYMENTS and stable != high:
            yield f"{topic}-{number}: last stable offset {stable}, high watermark {high}"


def last_stops(runs: Sequence[Run]) -> dict[Partition, int]:
    """Return where the last run stopped."""
    return {partition: stop for partition, (_, stop) in runs[-1].spans.items()}


CHECKS: tuple[Check, ...] = (
    inputs_are_sound,
    runs_are_finished,
    slices_join,
    offsets_are_at_their_stops,
    upstream_notified,
    echo_is_the_input,
    moved_is_the_input_by_shop,
    running_sums_are_recomputed,
    totals_are_recomputed,
    state_is_what_was_written,
    nothing_seen_is_gone,
    nothing_is_left_open,
)


def _fold_of(kind: str, paid: Sequence[Payment], rows: Sequence[Row]) -> Iterator[str]:
    waiting = _grouped(paid, lambda one: one.account)
    cents: list[int] = []
    total = 0
    for row in rows:
        update = row.json()
        before = len(cents)
        for account, number in update["numbers"].items():
            queue = waiting.get(account, [])
            reached = next((at for at, one in enumerate(queue) if one.number == number), None)
            taken = [] if reached is None else queue[: reached + 1]
            cents += [one.cents for one in taken]
            total += sum(one.cents for one in taken)
            del queue[: len(taken)]
        expected = {
            "count": len(cents),
            "total": total,
            "least": min(cents, default=0),
            "most": max(cents, default=0),
        }
        if expected != {name: update[name] for name in expected}:
            yield f"{TOTALS}-{row.partition}@{row.offset}, {kind}: found {update}, recomputed {expected}"
            return
        if len(cents) == before:
            yield f"{TOTALS}-{row.partition}@{row.offset}, {kind}: the same update as before"
    if left := [one.id for queue in waiting.values() for one in queue]:
        yield f"{TOTALS}, {kind}: the last update lacks payments {_some(left)}"


def _compare(
    topic: str,
    expected: Mapping[Any, Sequence[Any]],
    found: Mapping[Any, Sequence[Any]],
    *,
    identity: Callable[[Any], int] = lambda paid: paid.id,
) -> Iterator[str]:
    for key in sorted(expected.keys() | found.keys(), key=str):
        wanted, there = list(expected.get(key, ())), list(found.get(key, ()))
        if wanted == there:
            continue
        should, does = Counter(map(identity, wanted)), Counter(map(identity, there))
        if lost := should - does:
            yield f"{topic}, {key}: lost {_some(sorted(lost))}"
        if doubled := [one for one, count in does.items() if count > max(1, should[one])]:
            yield f"{topic}, {key}: more than once {_some(doubled)}"
        if strange := [one for one in does if one not in should]:
            yield f"{topic}, {key}: not of this input {_some(strange)}"
        if should == does:
            first = next((one, two) for one, two in zip(wanted, there, strict=True) if one != two)
            yield f"{topic}, {key}: expected {first[0]}, found {first[1]} in its place"


def _one_partition_per_key(evidence: Evidence, topic: str) -> Iterator[str]:
    homes: dict[str | None, set[int]] = defaultdict(set)
    for row in evidence.logs[topic]:
        homes[row.key].add(row.partition)
    for key, numbers in homes.items():
        if len(numbers) > 1:
            yield f"{topic}, {key}: in partitions {sorted(numbers)}"


def _grouped(paid: Sequence[Payment], key: Callable[[Payment], Any]) -> dict[Any, list[Payment]]:
    groups: dict[Any, list[Payment]] = defaultdict(list)
    for one in paid:
        groups[key(one)].append(one)
    return groups


def _some(things: Sequence[Any]) -> str:
    more = f" and {len(things) - _SHOWN} more" if len(things) > _SHOWN else ""
    return ", ".join(str(thing) for thing in things[:_SHOWN]) + more
