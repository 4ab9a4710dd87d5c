"""Says in words which processors are being added: for ``status`` and the doctor."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from airflow_kstreams.batch.expand.processor_plan import CopiedSource, ProcessorPlan, copied_of
from airflow_kstreams.batch.run.waiting import WaitingPartition

_UNKNOWN = "-"
#: A copy whose last step is younger is taken to be at work.
_AT_WORK_MS = 60_000
_MINUTE_SECONDS = 60


def expansion_rows(
    plan: ProcessorPlan, waiting: Collection[WaitingPartition], now_ms: int
) -> Iterator[tuple[str, ...]]:
    """Yield how far each new processor is: its task, its source's, T2 of T1, records per second, what time is
    left, what it waits for.

    :param waiting: partitions that wait for their ancestors.
    :param now_ms: epoch milliseconds.
    """
    for number in range(plan.before, plan.before if plan.after is None else plan.after.count):
        sources = [each for each in plan.sources if number in each.added]
        lag = sum(each.lag for each in sources)
        rate = max((each.rate for each in sources), default=0.0)
        at_work = any(each.lag and now_ms - each.stepped_ms < _AT_WORK_MS for each in sources)
        position, end = copied_of(sources)
        yield (
            f"{plan.sub.id}_{number}",
            ", ".join(dict.fromkeys(f"{plan.sub.id}_{each.changelog.partition}" for each in sources)),
            f"{position} of {end}",
            f"{rate:.0f}" if rate else _UNKNOWN,
            _time_text(lag / rate) if rate and at_work else _UNKNOWN,
            waits_for(plan, number, sources, waiting),
        )


def waits_for(
    plan: ProcessorPlan,
    number: int,
    sources: Collection[CopiedSource],
    waiting: Collection[WaitingPartition],
) -> str:
    """Return what a new processor waits for.

    :param number: of the processor.
    :param sources: how far the state is copied that it takes.
    :param waiting: partitions that wait for their ancestors.
    """
    if any(each.position is None and each.end for each in sources):
        return "its state to be copied"
    own = {tp for tp in plan.reads if plan.after is None or plan.after.of_partition(tp.partition) == number}
    behind = [each for each in waiting if each.partition in own and each.ahead]
    if behind:
        for_ = ", ".join(str(ancestor) for each in behind for ancestor in each.waits_for)
        return f"{', '.join(str(each.partition) for each in behind)} to be read, after {for_}"
    lag = sum(each.lag for each in sources)
    return "the next run" if not lag else f"the next run, if acceptable.recovery.lag is {lag} or more"


def _time_text(seconds: float) -> str:
    """Return a time that is left.

    >>> _time_text(12.3), _time_text(200)
    ('12 s', '3 min')
    """
    if seconds < 2 * _MINUTE_SECONDS:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE_SECONDS:.0f} min"
