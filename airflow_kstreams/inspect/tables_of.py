"""Makes tables of what was read, for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from airflow_kstreams.batch.inspect.ahead.lag import SeenLag
from airflow_kstreams.batch.inspect.runs.seen_runs import SeenRun, SeenRuns
from airflow_kstreams.batch.inspect.runs.suspicions import duration
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
            yield f"{run.run_id}: {suspicion.text} ({suspicion.setting}={suspicion.threshold:g})"
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
        yield f"Odd: {suspicion.text} ({suspicion.setting}={suspicion.threshold:g})"


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
