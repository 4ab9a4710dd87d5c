"""Packs counts by topic and node into the few bytes that an offset's metadata has for them.

A topic is written as its place in the plan of the task's subtopology, which is frozen with the slice; a node
as its name, the largest counts first. Where the text would be too long, nodes are added up by rule from the
smallest on; where even that does not fit, nothing is kept, and the counts are unknown from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from airflow_kstreams.streams.figures.record_counts import OTHER_NODES, LeftOut, RecordCounts
from airflow_kstreams.streams.plan import SubtopologyPlan


class PackedCounts(msgspec.Struct, frozen=True, array_like=True):
    """A task's counts since the slice's start.

    :param read: as in ``RecordCounts``, by place among the subtopology's sources.
    :param outside: as in ``RecordCounts``, by the same places; empty if there was none.
    :param written: by place among the subtopology's sinks.
    :param sent: by topic.
    :param left_out: as in ``RecordCounts``.
    :param unbalanced: place of a sink whose count does not fit the others, what must have been written, and
        what was counted; empty if all fit.
    """

    read: tuple[int, ...] = ()
    outside: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    sent: dict[str, int] = {}
    left_out: tuple[LeftOut, ...] = ()
    unbalanced: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, counts: RecordCounts, plan: SubtopologyPlan, unbalanced: tuple[str, int, int] | None = None
    ) -> PackedCounts:
        """Pack counts.

        :param plan: of the subtopology whose task counted them.
        :param unbalanced: topic, what must have been written to it, and what was counted.
        """
        wrong: tuple[int, ...] = ()
        if unbalanced is not None:
            topic, arrived, written = unbalanced
            wrong = (plan.sinks.index(topic), arrived, written)
        return cls(
            read=_placed(counts.read, plan.sources),
            outside=_placed(counts.outside, plan.sources) if counts.outside else (),
            written=_placed(counts.written, plan.sinks),
            sent=counts.sent,
            left_out=counts.left_out,
            unbalanced=wrong,
        )

    def unpacked(self, plan: SubtopologyPlan) -> RecordCounts:
        """Return the counts."""
        return RecordCounts(
            read=dict(zip(plan.sources, self.read, strict=False)),
            outside={t: count for t, count in zip(plan.sources, self.outside, strict=False) if count},
            written=dict(zip(plan.sinks, self.written, strict=False)),
            sent=self.sent,
            left_out=self.left_out,
        )

    def wrong(self, plan: SubtopologyPlan) -> tuple[str, int, int] | None:
        """Return the topic whose count does not fit, what must have been written, and what was counted."""
        if not self.unbalanced:
            return None
        place, arrived, written = self.unbalanced
        return plan.sinks[place], arrived, written

    def shorter(self) -> PackedCounts | None:
        """Return the same with half as many nodes by name; None if there are no more to add up."""
        named = sum(entry.node != OTHER_NODES for entry in self.left_out)
        if not named:
            return None
        fewer = RecordCounts(left_out=self.left_out).largest(named // 2)
        return msgspec.structs.replace(self, left_out=fewer.left_out)


def _placed(counts: Mapping[str, int], topics: Sequence[str]) -> tuple[int, ...]:
    return tuple(counts.get(topic, 0) for topic in topics)
