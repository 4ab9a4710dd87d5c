"""Where a run's global tables begin and end.

Rule: begin freezes the bounds of every partition of their topics: the log's start, and its last stable
offset. They stand in the run's plan, and so in both markers, beside the slice: nothing of them is committed,
and finish asks for none. Every task and every attempt of the run reads exactly this piece.
"""

from __future__ import annotations

from airflow_kstreams.batch.protocol.slice.slice import FrozenTable
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, TopicPartition


def freeze_global_tables(admin: AdminPort, plan: TopologyPlan) -> tuple[FrozenTable, ...]:
    """Return the bounds of the topics of a plan's global tables, which exist."""
    if not plan.globals:
        return ()
    found = admin.describe_topics(plan.globals)
    partitions = [TopicPartition(topic, n) for topic in plan.globals for n in range(found[topic].partitions)]
    starts = admin.start_offsets(partitions)
    ends = admin.end_offsets(partitions, isolation="read_committed")
    return tuple(
        FrozenTable(
            topic=topic,
            topic_id=found[topic].topic_id,
            spans=tuple((starts[tp], max(starts[tp], ends[tp])) for tp in partitions if tp.topic == topic),
        )
        for topic in plan.globals
    )
