"""Makes tables of what was read, for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from airflow_kstreams.batch.inspect.ahead.lag import SeenLag
from airflow_kstreams.batch.inspect.ahead.next_run import NextRun, WindowsToClose
from airflow_kstreams.batch.inspect.runs.seen_runs import SeenRun, SeenRuns
from airflow_kstreams.batch.inspect.runs.suspicions import Suspicion, duration
from airflow_kstreams.explore.tables import Table


def tables_of_runs(found: SeenRuns) -> Iterator[Table]:
    """Yield the table of a page of runs."""
    yield Table(
        title=f"Runs of {found.application_id}",
        columns=("run", "begun (UTC)", "state", "took", "in", "out", "lost"),
        rows=[
            (
                run.run_id,
                time_text(run.begun_ms),
                f"{run.state}?" if run.suspicions else run.state,
                duration(run.seconds * 1000),
                number_text(run.records_in),
                number_text(run.records_out),
                number_text(_lost(run)),
            )
            for run in found.runs
        ],
        numbers=4,
    )


def notes_of_runs(found: SeenRuns) -> Iterator[str]:
    """Yield what is odd about the runs, what was not looked at, and how to go on."""
    for run in found.runs:
        for suspicion in run.suspicions:
            yield f"{run.run_id}: {_odd(suspicion)}"
    yield from found.not_seen
    if found.next_before is not None:
        yield f"Older ones: --before '{found.next_before}'. {found.finished:,} runs have finished in all."


def tables_of_lag(found: SeenLag) -> Iterator[Table]:
    """Yield the tables of the offsets that wait, by topic and by partition."""
    yield Table(
        title=f"Waiting for {found.application_id}",
        columns=("topic", "records read up to (UTC)", "partitions", "of this run", "largest", "lag"),
        rows=[
            (
                f"{each.topic} (between)" if each.between else each.topic,
                "-" if each.read_to_ms is None else time_text(each.read_to_ms),
                f"{each.partitions:,}" + (f" ({each.gone} gone)" if each.gone else ""),
                number_text(each.of_run),
                number_text(each.largest),
                number_text(each.lag),
            )
            for each in found.topics
        ],
        numbers=4,
    )
    if found.partitions:
        yield Table(
            title="Partitions with the largest lags",
            columns=("topic", "partition", "position", "stop", "end", "lag"),
            rows=[
                (
                    part.topic,
                    str(part.partition),
                    str(part.position),
                    "" if part.stop is None else str(part.stop),
                    "gone" if part.end is None else str(part.end),
                    number_text(part.lag),
                )
                for part in found.partitions
            ],
            numbers=5,
            more=found.more_partitions,
        )


def notes_of_lag(found: SeenLag) -> Iterator[str]:
    """Yield the lag in one sentence, the run that takes it, and what is odd about it."""
    begun = found.last_begun_ms
    since = (
        "no run has begun" if begun is None else f"the last run began {duration(found.now_ms - begun)} ago"
    )
    yield f"Offsets that wait in inputs: {found.lag:,}; {since}."
    if found.run_id is not None:
        driver = f"driver {found.driver} has the lease" if found.driver else "no driver works on it"
        yield f"Run {found.run_id} is under way, {driver}; {found.of_run:,} of them are its own."
    if found.parked != 0:
        yield f"Parked records that wait: {number_text(found.parked)}."
    for suspicion in found.suspicions:
        yield f"Odd: {_odd(suspicion)}"


_KINDS = {
    "new": "a new slice would be frozen",
    "resume": "an unfinished run would be gone on with",
    "nothing new": "nothing new: no task would run",
    "refused": "the begin would be refused",
    "busy": "a driver holds the lease",
}


def tables_of_plan(found: NextRun) -> Iterator[Table]:
    """Yield the tables of the run that would begin now."""
    rows = [("begin", _KINDS[found.kind])]
    if found.run_id is not None:
        rows.append(("run", found.run_id))
    if found.refused is None:
        rows.append(("reads", f"at most {found.records:,} records, {found.tasks:,} tasks"))
    if found.interval_ms is not None:
        rows.append(("data interval (UTC)", " to ".join(map(time_text, found.interval_ms))))
    if found.expected is not None:
        expected = found.expected
        least, most = duration(expected.least * 1000), duration(expected.most * 1000)
        took = duration(expected.seconds * 1000)
        rows.append(("takes about", f"{took} ({least} to {most}, by {expected.runs} runs)"))
    for node, count in found.parked.items():
        rows.append((f"parked at {node}", number_text(count)))
    for windows in found.windows:
        rows.append((f"windows of subtopology {windows.subtopology}", _closing(windows)))
    if found.creates:
        rows.append(("creates", ", ".join(found.creates)))
    yield Table(title=f"Next run of {found.application_id}", columns=("what", "is"), rows=rows)
    if found.partitions:
        yield Table(
            title="Slice",
            columns=("topic", "partition", "start", "stop", "offsets"),
            rows=[
                (
                    part.topic,
                    *map(number_text, (part.partition, part.start, part.stop, part.stop - part.start)),
                )
                for part in found.partitions
            ],
            numbers=4,
            more=found.more_partitions,
        )
    if found.state and found.refused is None and found.tasks:
        yield Table(
            title="State to restore, where a task finds no files of its own",
            columns=("store", "changelog", "partitions", "records"),
            rows=[
                (each.store, each.changelog, *map(number_text, (each.partitions, each.records)))
                for each in found.state
            ],
            numbers=2,
        )


def notes_of_plan(found: NextRun) -> Iterator[str]:
    """Yield the refusal with its remedy, warnings, and what was not looked at."""
    if found.refused is not None:
        yield f"{found.refused.error}: {found.refused.cause}"
        if found.refused.fix:
            yield f"What to do: {found.refused.fix}"
    yield from (f"Warning: {warning}" for warning in found.warnings)
    yield from (f"Not looked at: {text}" for text in found.not_seen)
    yield "Nothing was written."


def _closing(windows: WindowsToClose) -> str:
    now = "no record yet" if windows.stream_time_ms is None else f"at {time_text(windows.stream_time_ms)}"
    if windows.to_ms is None:
        return f"{now}; new records decide which close"
    due = "an unknown number" if windows.tasks_due is None else f"{windows.tasks_due:,}"
    return f"{now}, brought to {time_text(windows.to_ms)} at least: {due} of {windows.tasks:,} tasks publish"


def _odd(suspicion: Suspicion) -> str:
    return f"{suspicion.text} ({suspicion.setting}={suspicion.threshold:g})"


def _lost(run: SeenRun) -> int | None:
    """Return the number of records that were late, dead-lettered, skipped or parked; None if not known."""
    lost = [run.late, run.dead_lettered, run.skipped, run.parked]
    known = [count for count in lost if count is not None]
    return sum(known) if len(known) == len(lost) else None


def number_text(number: int | None) -> str:
    """Return a number, a dash where it is not known."""
    return "-" if number is None else f"{number:,}"


def time_text(epoch_ms: int) -> str:
    """Return a time in UTC."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
