"""Counts the records that wait in retry topics for their next attempt, from one run to the next.

A record whose call failed for now is parked: its copy goes into its node's retry topic, a changelog of the
task, in the transaction that releases it. So a run finishes with records parked, and the next one must know
which tasks have some, though there is nothing else to read.

Rule: every commit of a task writes beside its offsets the number of records that the task has parked, node by
node. Begin repeats it beside the offsets that it commits, and finish writes it into the ledger. A task owes
the run its last commit if it had records parked when the run began, or has retry topics and has committed in
the run: neither its driver nor finish takes it for done before, wherever its offsets are. Begin commits them
at the stops of a task with nothing to read; and a task that stays at its stops for parked records commits
there meanwhile.

Invariant: the counts beside a task's offsets are as of the commit that wrote them, because it wrote both. So
they are newer than the ledger, which has the counts that the last finished run, or a reset, left.

Crash argument: the counts and the records they count are in one transaction. Where they are not known,
because there was no room for them or an operator set the offsets of an unfinished run, the task counts as one
that may have some: it runs, finds none, and says so. A task that dies between a commit at its stops and its
last one still owes the last one, even if nothing is parked any more: the next attempt restores the parked
records, waits for them, and closes its processors. What they forward in close is in the last commit alone,
with the done notification. So it comes once, and readers of intermediate topics wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.streams.naming.topic_names import RETRY_ENDING, ProtocolTopics
from airflow_kstreams.streams.plan import SubtopologyPlan

#: Node -> partition group of the task, which is the partition of the retry topic -> number of parked records;
#: None where it is not known. Entries of 0 are left out.
Parked = Mapping[str, Mapping[int, int | None]]


def retry_topic(application_id: str, node: str) -> str:
    """Return the retry topic of a node."""
    return ProtocolTopics(application_id).internal(f"{node}{RETRY_ENDING}")


def retry_nodes(application_id: str, changelogs: Iterable[str]) -> list[str]:
    """Return the nodes whose retry topics are among the changelogs of a subtopology."""
    prefix = ProtocolTopics(application_id).internal("")
    return [
        topic.removeprefix(prefix).removesuffix(RETRY_ENDING)
        for topic in sorted(changelogs)
        if topic.endswith(RETRY_ENDING)
    ]


def may_park(sub: SubtopologyPlan) -> bool:
    """Whether tasks of a subtopology have retry topics."""
    return any(topic.endswith(RETRY_ENDING) for topic in sub.changelogs.values())


def owes_last_commit(
    run_id: str, committed: Iterable[OffsetMetadata], sub: SubtopologyPlan, *, moment_ms: int | None
) -> bool:
    """Whether a task whose offsets are at its stops must still run to make its last commit.

    :param committed: metadata beside the task's committed offsets.
    :param sub: subtopology of the task.
    :param moment_ms: moment to which the end of the run brings its stream time, epoch milliseconds; None
        without one.
    """
    ours = [each for each in committed if each.run_id == run_id]
    if any(each.complete for each in ours):
        return False
    # Metadata without a task's name is begin's, with what earlier runs left.
    if moment_ms is not None and any(each.task_id or each.due_at(moment_ms) for each in ours):
        return True
    if not may_park(sub):
        return False
    # Only a task writes its name; None: not known.
    return any(each.task_id or each.parked is None or each.parked for each in ours)


def parked_total(parked: Parked) -> dict[str, int | None]:
    """Add up the parked records by node; None where a part is not known."""
    found: dict[str, int | None] = {}
    for node, by_group in parked.items():
        counts = list(by_group.values())
        known = [count for count in counts if count is not None]
        found[node] = sum(known) if len(known) == len(counts) else None
    return found


def parked_in_all(by_task: Iterable[Mapping[str, int | None]]) -> dict[str, int | None]:
    """Add up the parked records of tasks, by node; None where a part is not known."""
    found: dict[str, int | None] = {}
    for by_node in by_task:
        for node, count in by_node.items():
            before = found.get(node, 0)
            found[node] = None if before is None or count is None else before + count
    return dict(sorted(found.items()))


def parked_text(by_node: Mapping[str, int | None]) -> str:
    """Return the number of parked records at each node, in words: ``3 at enrich``."""
    return ", ".join(
        f"{'an unknown number' if count is None else count} at {node}"
        for node, count in sorted(by_node.items())
    )


def sum_parked(by_node: Mapping[str, int | None]) -> int | None:
    """Return the number of all parked records; None if it is not known."""
    known = [count for count in by_node.values() if count is not None]
    return sum(known) if len(known) == len(by_node) else None
