"""Makes the tables and notes of ``expand``."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_kstreams.batch.expand.growth import GrowthPlan
from airflow_kstreams.batch.expand.processor_plan import CopiedSource, ProcessorPlan
from airflow_kstreams.batch.report.growing import history_text, kinds_text
from airflow_kstreams.explore.tables import Table
from airflow_kstreams.streams.figures.number_texts import counted

#: Number of new partitions, or sources, with a row of their own.
_ROWS = 20


def growth_tables(plan: GrowthPlan) -> Iterator[Table]:
    """Yield a topic's partitions, and the new ones."""
    yield Table(
        title=f"Topic {plan.topic} of application {plan.application_id}",
        columns=("what", "is"),
        rows=list(_growth_rows(plan)),
    )
    if plan.new:
        waits = {each.partition: ", ".join(map(str, each.waits_for)) for each in plan.waits}
        yield Table(
            title="New partitions",
            columns=("partition", "task", "its keys come from", "would wait now for"),
            rows=[
                (
                    str(new.partition),
                    f"{plan.subtopology}_{new.group}",
                    ", ".join(f"{plan.topic}-{number}" for number in new.ancestors),
                    waits.get(new.partition, "nothing"),
                )
                for new in plan.new[:_ROWS]
            ],
            more=max(0, len(plan.new) - _ROWS),
        )


def _growth_rows(plan: GrowthPlan) -> Iterator[tuple[str, str]]:
    yield "partitions", str(plan.count) if plan.done else f"{plan.before} -> {plan.count}"
    yield "read by", f"subtopology {plan.subtopology}, {counted(plan.tasks, 'task')}"
    if plan.grown is not None:
        yield "partition counts", history_text(plan.grown.history)
        yield "first count", str(plan.grown.history[0])
        yield "kinds of growth", kinds_text(plan.grown)


def processor_tables(plan: ProcessorPlan) -> Iterator[Table]:
    """Yield a subtopology's processors, and the state to copy for new ones."""
    after = plan.before if plan.after is None else plan.after.count
    rows = [
        ("reads", ", ".join(plan.sub.sources)),
        ("processors", str(plan.before) if plan.after is None else f"{plan.before} -> {after}"),
        ("partitions", ", ".join(f"{count} of {topic}" for topic, count in plan.entry.partitions.items())),
    ]
    if plan.after is not None:
        rows.append(("the new ones read", ", ".join(map(str, plan.reads[:_ROWS]))))
    yield Table(
        title=f"Subtopology {plan.sub.id} of application {plan.application_id}",
        columns=("what", "is"),
        rows=rows,
    )
    if plan.sources:
        yield Table(
            title="State to copy",
            columns=("from", "for processors", "copied to", "ends at", "entries", "bytes"),
            rows=[_row(each) for each in plan.sources[:_ROWS]],
            numbers=4,
            more=max(0, len(plan.sources) - _ROWS),
        )


def _row(each: CopiedSource) -> tuple[str, ...]:
    position = "-" if each.position is None else str(each.position)
    added = ", ".join(map(str, each.added))
    return (
        str(each.changelog),
        added,
        position,
        str(each.end),
        str(each.told.copied),
        str(each.told.copied_bytes),
    )


def processor_notes(plan: ProcessorPlan, count: int) -> Iterator[str]:
    """Yield how far the state of new processors is copied.

    :param count: number of processors to grow to.
    """
    if plan.after is None:
        yield f"Subtopology {plan.sub.id} has {counted(count, 'processor')}."
    elif any(each.lag or each.position is None for each in plan.sources):
        yield "The takeover comes with a run that finds no more than acceptable.recovery.lag left to copy."
    else:
        yield "All state is copied: the next run makes the takeover unless partitions wait for ancestors."
