"""Checks that partitions which topics have gained do not wait longer than they should.

Rule: one run is usual, for it reads what they wait for. A run whose slice is cut, by its data interval or by
an open transaction, may leave some of that to the next. What has waited for several runs is not coming nearer
by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from airflow_kstreams.batch.inspect.doctor.findings import Finding, ok, warning
from airflow_kstreams.batch.inspect.doctor.seen import DoctorView
from airflow_kstreams.batch.run.waiting import WaitingPartition, waiting_partitions, waiting_text
from airflow_kstreams.streams.ports import TopicPartition

#: Finished runs that have left a partition where it is, from which on a person should look.
_RUNS = 3


def check(seen: DoctorView) -> Iterator[Finding]:
    """Look at the partitions that wait, and for how many runs they have."""
    recorded = seen.ledger.assignment
    grouped = {} if recorded is None else {int(sub): e for sub, e in recorded.subtopologies.items()}
    topics = {topic for entry in grouped.values() if entry.boundaries for topic in entry.grown}
    if not topics:
        return
    partitions = [
        TopicPartition(topic, number)
        for topic in sorted(topics & seen.topics.keys())
        for number in range(seen.topics[topic].partitions)
    ]
    with closing(seen.cluster.reader(group_id=seen.plan.application_id)) as reader:
        positions = {tp: offset.offset for tp, offset in reader.committed(partitions).items()}
    waits = [each for each in waiting_partitions(grouped, positions.get) if each.ahead]
    if waits:
        yield _judged(seen, waits, positions)


def _judged(
    seen: DoctorView, waits: list[WaitingPartition], positions: Mapping[TopicPartition, int]
) -> Finding:
    text = f"gained partitions are read after what their keys came from: {waiting_text(waits)}"
    if not _left(seen, {each.partition: positions.get(each.partition, 0) for each in waits}):
        return ok("waiting partitions", text)
    return warning(
        "waiting partitions",
        f"{text}; the last {_RUNS} runs have not come past that, and nothing of the gained partitions is "
        "processed until one does",
        "see under open transactions, and what autostop.at cuts the runs by: with interval_end what is dated "
        "later than a run's data interval is left to later runs; one run with autostop.at=eol reads it all",
    )


def _left(seen: DoctorView, waiting: Mapping[TopicPartition, int]) -> bool:
    """Say whether each of the last runs has left one and the same partition where it waits.

    :param waiting: where they are.
    """
    last = seen.ledger.latest(_RUNS)
    left = {*waiting}
    for run in last:
        stops = seen.ledger.detailed(run).stops
        left = {tp for tp in left if stops.get(tp) == waiting[tp]}
    return len(last) == _RUNS and bool(left)
