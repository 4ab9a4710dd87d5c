"""What must hold of the calls of asynchronous nodes, by what the service has seen of them."""

from __future__ import annotations

from collections import Counter, defaultdict

from airflow_kstreams.streams.ports import TopicPartition
from tests.simulation.expectations import Expectations, ViolationError
from tests.simulation.history import Entry, History
from tests.simulation.sometimes import sometimes
from tests.simulation.stages import APPLICATION_ID
from tests.simulation.steps import CallingNode


def calls_are_within_bounds(history: History, expected: Expectations) -> None:
    """No node makes more calls at once than it may, none is given a closed resource, a key names one call."""
    if expected.service is not None and expected.service.wrong:
        raise ViolationError("; ".join(expected.service.wrong[:4]))


def each_record_takes_effect_once(history: History, expected: Expectations) -> None:
    """Of each record that the finished runs read, a call took effect; its key is what the documentation says;
    nothing else took effect.
    """
    if expected.service is None:
        return
    effects = expected.service.effects
    begun: dict[str, int] = defaultdict(int)
    for kind, visit in expected.service.events:
        begun[visit.key] += kind == "begin"
    if any(count > 1 for key, count in begun.items() if key):
        sometimes("a call was made again and took no second effect")
    ids: dict[str, str] = {}
    by_node: dict[str, set[str]] = defaultdict(set)
    for key in effects:
        prefix, place, topic_id, name, ordinal = key.rsplit("/", 4)
        if not topic_id or ids.setdefault(_place(place)[0].topic, topic_id) != topic_id:
            raise ViolationError(f"{key} names topic {topic_id}, which is another one in other keys")
        by_node[name].add(f"{prefix}/{place}/{name}/{ordinal}")
    for node in (node for node in expected.calling if node.topics):
        wanted, maybe = _records_of(node, history)
        found = by_node[node.name]
        if not found <= wanted | maybe or not wanted <= found:
            raise ViolationError(
                f"calls of {node.name} took effect without a record: {sorted(found - wanted - maybe)[:4]}, "
                f"records without effect: {sorted(wanted - found)[:4]}"
            )


def calls_of_a_key_are_in_order(history: History, expected: Expectations) -> None:
    """With order ``key``, each attempt calls the records of a key one after the other, in their order; and so
    first calls and effects come in that order, over all attempts.
    """
    if expected.service is None:
        return
    for node in expected.calling:
        if node.order == "key" and node.topics:
            _check_begins(node, history, expected)
            _check_effects(node, history, expected)


def records_are_given_up_after_their_last_call(history: History, expected: Expectations) -> None:
    """A record whose calls fail again and again is called as often as its node says."""
    if expected.service is None:
        return
    calls = Counter((visit.node, visit.place) for kind, visit in expected.service.events if kind == "begin")
    for node in expected.calling:
        if not node.parks or node.fates is None:
            continue
        for (name, place), number in calls.items():
            fails_on = node.name == name and node.fates.of(place).then == "fails on"
            if fails_on and number < node.fates.policy.attempts:
                raise ViolationError(f"{name}: {place} was given up after {number} calls")


def _check_begins(node: CallingNode, history: History, expected: Expectations) -> None:
    running: dict[tuple[int, str], int] = {}
    called: set[str] = set()
    first: dict[tuple[TopicPartition, str], int] = {}
    last: dict[tuple[int, TopicPartition, str], int] = {}
    newest: dict[tuple[int, TopicPartition], int] = {}
    assert expected.service is not None
    for kind, visit in expected.service.events:
        if visit.node != node.name or visit.partition is None:
            continue
        key = _entry(history, visit.partition, visit.offset).key
        at, place = (visit.attempt, key), f"{visit.partition}@{visit.offset}"
        if kind == "end":
            running.pop(at, None)
            continue
        if at in running:
            raise ViolationError(f"{node.name}: {place} was called while {key} had a call, {running[at]}")
        before = last.get((visit.attempt, visit.partition, key), -1)
        if visit.offset < before or (visit.offset == before and node.fates is None):
            raise ViolationError(f"{node.name}: the call of {place} came behind a later one of {key}")
        if visit.offset == before:
            sometimes("a call was made again in the attempt in which it failed")
        if place not in called:
            called.add(place)
            newer = first.get((visit.partition, key), -1)
            if visit.offset < newer:
                raise ViolationError(f"{node.name}: {place} was called first, and after {newer} of {key}")
            first[visit.partition, key] = visit.offset
        if visit.offset < newest.get((visit.attempt, visit.partition), -1):
            sometimes("a call was overtaken by one of another key")
        running[at] = last[visit.attempt, visit.partition, key] = visit.offset
        newest[visit.attempt, visit.partition] = max(
            visit.offset, newest.get((visit.attempt, visit.partition), -1)
        )


def _check_effects(node: CallingNode, history: History, expected: Expectations) -> None:
    last: dict[tuple[TopicPartition, str], int] = {}
    assert expected.service is not None
    for named in expected.service.effects:
        _, place, _, name, _ = named.rsplit("/", 4)
        if name != node.name:
            continue
        partition, offset = _place(place)
        entry = _entry(history, partition, offset)
        if node.fails(entry.value or "") or node.gives_up(place):
            continue
        if offset < last.get((partition, entry.key), -1):
            raise ViolationError(f"{node.name}: the effect of {place} came behind a later one of {entry.key}")
        last[partition, entry.key] = offset


def _records_of(node: CallingNode, history: History) -> tuple[set[str], set[str]]:
    """Return the keys, without the topic's id, of the calls that must have taken effect, and of those that
    may have.
    """
    wanted: set[str] = set()
    maybe: set[str] = set()
    for topic in node.topics:
        for number, slices in history.read(topic).items():
            for entry in (entry for part in slices for entry in part):
                place = f"{topic}-{number}@{entry.offset}"
                if not node.reached_by(place):
                    continue
                fails = node.fails(entry.value or "") or node.gives_up(place)
                key = f"{APPLICATION_ID}/{place}/{node.name}/{node.ordinal}"
                (maybe if fails else wanted).add(key)
    return wanted, maybe


def _place(text: str) -> tuple[TopicPartition, int]:
    partition, offset = text.rsplit("@", 1)
    topic, number = partition.rsplit("-", 1)
    return TopicPartition(topic, int(number)), int(offset)


def _entry(history: History, partition: TopicPartition, offset: int) -> Entry:
    by_offset = history.given.get(partition)
    if by_offset is None:
        by_offset = history.given[partition] = {
            entry.offset: entry for entry in history.logs.get(partition, ())
        }
    found: Entry | None = by_offset.get(offset)
    if found is None:
        raise ViolationError(f"{partition}@{offset} was called for, and is no final record")
    return found
