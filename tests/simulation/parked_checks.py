"""What must hold of parked records, by the retry topics: read as what they are, changelogs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from airflow_kstreams.testing import InMemoryKafka
from tests.simulation.expectations import Expectations, ViolationError
from tests.simulation.history import FinishedRun, History
from tests.simulation.sometimes import sometimes
from tests.simulation.stage_oracles import given_by, groups_of
from tests.simulation.stages import APPLICATION_ID, DEAD_LETTERS, Copy, FoldsAtOnce
from tests.simulation.steps import CallingNode


def parked_in(kafka: InMemoryKafka, nodes: Sequence[CallingNode]) -> bool:
    """Whether a record is parked at one of these nodes."""
    known = set(kafka.topics())
    topics = [_retry_topic(node) for node in nodes if node.parks]
    return any(
        _folded((r.partition(), r.key(), r.value()) for r in kafka.records(topic))
        for topic in topics
        if topic in known
    )


def runs_say_what_is_parked(history: History, expected: Expectations) -> None:
    """Every finished run says how many records it leaves parked at each node; the last one leaves none."""
    nodes = [node for node in expected.calling if node.parks]
    for run in history.finished if nodes else ():
        there = {node.name: _parked_at(node, history, run) for node in nodes}
        if +Counter(there) != run.parked:
            raise ViolationError(f"run {run.run_id} says {run.parked} parked, there are {there}")
        if any(there.values()):
            sometimes("a run left records parked")
    if nodes and history.finished[-1].parked:
        raise ViolationError(f"parked for ever: {history.finished[-1].parked}")


def each_record_is_somewhere(history: History, expected: Expectations) -> None:
    """When a run is finished, each record that was read has gone on, or is a dead letter, or parked.

    This is looked at where a record leads to one record.
    """
    if not (expected.parks and expected.exactly_once):
        return
    stages: dict[tuple[str, ...], list[Copy | FoldsAtOnce]] = {}
    for stage in expected.application.stages:
        if isinstance(stage, Copy | FoldsAtOnce):
            stages.setdefault(stage.sources, []).append(stage)
    for sources, beside in stages.items():
        steps = {step for stage in beside for step in stage.steps}
        given = [given_by(one, n, history, expected) for one in beside for n in groups_of(one, expected)]
        for number, run in enumerate(history.finished):
            read = sum(result.run <= number for one in given for result in one.results)
            read += sum(at <= number for one in given for _, at in one.failed)
            gone_on = sum(
                entry.commit <= run.commit and (stage.sink, entry.value) not in expected.outsiders
                for stage in beside
                for log in history.topic(stage.sink).values()
                for entry in log
            )
            letters = sum(
                entry.commit <= run.commit and entry.headers["__streams.errors.topic"] in sources
                for log in history.topic(DEAD_LETTERS).values()
                for entry in log
            )
            parked = sum(
                _parked_at(node, history, run)
                for node in expected.calling
                if node.parks and node.name in steps
            )
            if read != gone_on + letters + parked:
                raise ViolationError(
                    f"run {run.run_id} has read {read} of {sources}: {gone_on} went on, {letters} are dead "
                    f"letters, {parked} are parked"
                )


def _parked_at(node: CallingNode, history: History, run: FinishedRun) -> int:
    """Return how many records a run left parked at a node."""
    return len(
        _folded(
            (number, entry.key, entry.value)
            for number, log in history.topic(_retry_topic(node)).items()
            for entry in sorted(log, key=lambda entry: (entry.commit, entry.offset))
            if entry.commit <= run.commit
        )
    )


def _retry_topic(node: CallingNode) -> str:
    return f"{APPLICATION_ID}-{node.name}-retry"


def _folded(entries: Iterable[tuple[int, object, object]]) -> set[tuple[int, object]]:
    """Return the keys that an entry has in a changelog."""
    held: set[tuple[int, object]] = set()
    for partition, key, value in entries:
        (held.discard if value is None else held.add)((partition, key))
    return held


def parked_records_are_bounded(history: History, expected: Expectations) -> None:
    """No more records are parked in a task than may be, with what may be under way when so many are."""
    for node in expected.calling:
        if not (node.parks and node.topics and expected.waiting):
            continue
        most = _most(node, expected)
        for number, log in history.topic(_retry_topic(node)).items():
            held: set[str] = set()
            for entry in sorted(log, key=lambda entry: (entry.commit, entry.offset)):
                (held.discard if entry.value is None else held.add)(entry.key)
                if len(held) > most:
                    raise ViolationError(
                        f"{len(held)} records are parked at {node.name}-{number}, not {most}"
                    )


def _most(node: CallingNode, expected: Expectations) -> int:
    """Return how many records may be parked at a node; those parked above it may come down to it."""
    if node.fates is None or not node.parks:
        return 0
    above = sum(_most(each, expected) for each in node.under)
    return node.fates.policy.max_parked + expected.waiting + above
