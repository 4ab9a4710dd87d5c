"""Makes the tables of ``status``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import time

from airflow_kstreams.batch.expand.processor_plan import ProcessorPlan
from airflow_kstreams.batch.inspect.standing import Standing, earlier_attempts
from airflow_kstreams.batch.inspect.status import RunStatus
from airflow_kstreams.batch.inspect.tables.listed_files import landed_by, waiting_lines
from airflow_kstreams.batch.ledger.run_summary import RunSummary, completed
from airflow_kstreams.batch.metrics import (
    NODE_UNITS,
    calls_in_all,
    figures,
    latency_text,
    node_figures,
    number_text,
    rate_text,
    share_text,
    slowest_first,
    thread_figures,
)
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport, by_subtopology
from airflow_kstreams.batch.protocol.offsets.parked import parked_total, retry_topic, sum_parked
from airflow_kstreams.batch.protocol.slice.metadata import RunState
from airflow_kstreams.batch.report.counts import count_rows, due_text
from airflow_kstreams.batch.report.growing import blocked_rows, expansion_rows, growth_rows, reading_rows
from airflow_kstreams.cli.documents.status_document import last_runs
from airflow_kstreams.explore.tables import Table
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.record_counts import shown_node
from airflow_kstreams.streams.figures.time_texts import time_text

#: Number of tasks with a row of their own.
_TASKS = 20


def _number(number: float | None) -> str:
    return "-" if number is None else str(number)


#: Heading, name of the figure, and the function that writes it.
_Column = tuple[str, str, Callable[[float | None], str]]
_SPEED: tuple[_Column, ...] = (
    ("process-total", "process-total", _number),
    ("process-rate", "process-rate", rate_text),
    ("process-latency p50", "process-latency-p50", latency_text),
    ("p99", "process-latency-p99", latency_text),
    ("commit-latency avg", "commit-latency-avg", latency_text),
    ("max", "commit-latency-max", latency_text),
    ("dropped", "dropped-records-total", _number),
    ("restore-rate", "restore-rate", rate_text),
    ("records-lag", "records-lag", _number),
)
_CALLS: tuple[_Column, ...] = (
    ("call-total", "call-total", number_text),
    ("call-rate", "call-rate", rate_text),
    ("latency p50", "call-latency-p50", latency_text),
    ("p99", "call-latency-p99", latency_text),
    ("max", "call-latency-max", latency_text),
    ("in-flight avg", "calls-in-flight-avg", number_text),
    ("max", "calls-in-flight-max", number_text),
    ("queued", "calls-queued-avg", number_text),
    ("failed", "call-failed-total", number_text),
    ("timeout", "call-timeout-total", number_text),
    ("retry", "call-retry-total", number_text),
    ("parked", "records-parked", number_text),
)
_THREADS: tuple[_Column, ...] = (
    ("records-waiting avg", "records-waiting-avg", number_text),
    ("max", "records-waiting-max", number_text),
    ("running", "thread-running", number_text),
    ("idle", "thread-idle", number_text),
    ("abandoned", "thread-abandoned", number_text),
    ("replaced", "thread-replaced-total", number_text),
    ("threads busy", "thread-busy-ratio", share_text),
    ("event loop busy", "event-loop-busy-ratio", share_text),
)


def status_tables(found: RunStatus, runs: int) -> Iterator[Table]:
    """Yield what an application is at, its figures, and its last finished runs.

    :param runs: number of finished runs.
    """
    yield Table(
        title=f"Application {found.application_id}", columns=("what", "is"), rows=list(_summary(found))
    )
    if found.positions:
        stops = {} if found.slice is None else {part.topic_partition: part for part in found.slice.inputs}
        yield Table(
            title=f"Offsets of group {found.application_id}",
            columns=("topic", "partition", "committed", "stop", "end", "lag"),
            rows=[
                (
                    tp.topic,
                    str(tp.partition),
                    str(found.committed[tp].offset) if tp in found.committed else "none",
                    str(stops[tp].stop_offset) if tp in stops else "",
                    str(found.ends[tp]) if tp in found.ends else "gone",
                    str(found.lag[tp]) if tp in found.ends else "",
                )
                for tp in sorted(found.positions)
            ],
            numbers=5,
        )
    yield from _growth(found)
    if tasks := found.tasks:
        yield _speed(found, tasks)
        yield from _calls(found, tasks)
    if parked := found.parked:
        yield Table(
            title="Parked records",
            columns=("node", "retry topic", "partition", "records"),
            rows=[
                (node, retry_topic(found.application_id, node), str(group), _number(count))
                for node, by_group in sorted(parked.items())
                for group, count in sorted(by_group.items())
            ],
            numbers=2,
        )
    shown = last_runs(found, runs)
    if shown:
        yield Table(
            title="Finished runs",
            columns=("run", "finished (UTC)", "", "in", "out", "late"),
            rows=[_run(run) for run in shown],
            numbers=3,
        )
        yield from _landed(shown)
        yield from _counts(shown)


def _growth(found: RunStatus) -> Iterator[Table]:
    """Yield tables of the partitions under state: their counts, their tasks, and those that wait."""
    if found.grouped:
        yield Table(
            title="Partitions under state, by subtopology",
            # Short headings: a table of 80 columns has room for the names of topics.
            columns=("sub", "topic", "counts", "growth", "first", "now", "tasks"),
            rows=list(growth_rows(found.grouped, found.counts)),
            numbers=3,
        )
    reading = list(reading_rows(found.grouped))
    if reading:
        yield Table(
            title="Tasks of topics that have grown",
            columns=("task", "topic", "partitions, and what their keys came from"),
            rows=reading[:_TASKS],
            more=max(0, len(reading) - _TASKS),
        )
    blocked = list(blocked_rows(found.blocked))
    if blocked:
        yield Table(
            title="Partitions that wait for what their keys came from",
            columns=("partition", "task", "waits for", "offsets to go"),
            rows=blocked[:_TASKS],
            numbers=1,
            more=max(0, len(blocked) - _TASKS),
        )
    for plan in found.expansions or ():
        yield _more_processors(found, plan)


def _more_processors(found: RunStatus, plan: ProcessorPlan) -> Table:
    """Return the table of a subtopology's new processors."""
    rows = list(expansion_rows(plan, found.blocked, round(time() * 1000)))
    since = [run for run in found.runs if plan.begun_ms and run.begun_ms >= plan.begun_ms]
    return Table(
        title=f"Processors on their way: {plan.before} -> {plan.before + len(rows)} of subtopology "
        f"{plan.sub.id}, {counted(len(since), 'run')} finished meanwhile",
        columns=("task", "state of", "copied, of all", "records/s", "left", "waits for"),
        rows=rows[:_TASKS],
        more=max(0, len(rows) - _TASKS),
    )


def _summary(found: RunStatus) -> Iterator[tuple[str, str]]:
    run = found.continuous or found.slice
    state = "continuous" if found.continuous is not None else found.state.value
    if found.parked and found.continuous is None and found.state is RunState.FINISHED:
        state = completed(parked_total(found.parked))
    if found.expansions is None:
        yield "more processors", "unknown: this user may not describe their group or the changelogs"
    if found.standing is not None:
        yield from _standing(found, found.standing)
    if times := found.histories.unreadable:
        yield "history", f"what the ledger keeps of attempts could not be read {times}x, and began anew"
    if found.standing is None or run is None or found.standing.run_id != run.run_id:
        yield "state", state if run is None else f"{state}, run {run.run_id}, generation {run.generation}"
    if found.slice is not None:
        yield "begun (UTC)", time_text(found.slice.plan.begun_ms)
    for pattern, matches in ({} if run is None else run.plan.topology.patterns).items():
        yield f"topics {pattern}", ", ".join(matches)
    if found.parked:
        number = sum_parked(parked_total(found.parked))
        yield "parked", f"{counted(number, 'record')}; {due_text(found.parked_due_ms)}"
    yield from waiting_lines(found.waiting)
    yield from (("not looked at", text) for text in found.not_seen)
    if found.lease is None:
        yield "lease", "not held"
    else:
        renewed = f"{time_text(found.lease_renewed_ms)} UTC"
        yield "lease", f"{found.lease.owner} for run {found.lease.owner_run_id}, last renewed {renewed}"
    if found.reset is not None:
        yield (
            "last reset",
            f"{found.reset.stage.value}, {time_text(found.reset.begun_ms)} UTC: {found.reset.command}",
        )


def _standing(found: RunStatus, standing: Standing) -> Iterator[tuple[str, str]]:
    """Yield the state of the run that is under way or to be gone on with, and the command for that."""
    yield "run", standing.run_id
    yield "state", standing.text
    if earlier := earlier_attempts(found.histories.of(standing.run_id)):
        yield "earlier attempts", earlier
    if standing.failure is not None and standing.failure.remedy:
        yield "what to do", standing.failure.remedy
    if standing.command:
        yield "then", standing.command
    if standing.waiting:
        yield "after it", standing.waiting


def _run(run: RunSummary) -> tuple[str, ...]:
    marks = (("empty", run.empty), ("taken back", run.taken_back_ms), (run.state, run.parked))
    late = None if run.counts is None else run.counts.by("late")
    return (
        run.run_id,
        time_text(run.finished_ms),
        ", ".join(note for note, true in marks if true),
        *map(_number, (run.records_in, run.records_out, late)),
    )


def _landed(shown: Sequence[RunSummary]) -> Iterator[Table]:
    """Yield the snapshots that these runs have made; nothing without tables."""
    rows = [
        (run.run_id, each.table, each.snapshot or "-", *map(_number, (each.sequence, each.rows, each.files)))
        for run in shown
        for each in landed_by(run)
    ]
    if rows:
        yield Table(
            title="Snapshots of tables",
            columns=("run", "table", "snapshot", "sequence", "rows", "files"),
            rows=rows,
            numbers=3,
        )


def _counts(shown: Sequence[RunSummary]) -> Iterator[Table]:
    """Yield the record counts of the last run that had records."""
    for run in reversed(shown):
        rows = [(row.place, row.what, str(row.records)) for row in count_rows(run)]
        if rows and not run.empty:
            yield Table(
                title=f"Records of run {run.run_id}",
                columns=("topic or node", "what", "records"),
                rows=rows,
                numbers=1,
            )
            return


def _speed(found: RunStatus, reports: Sequence[TaskReport]) -> Table:
    """Return the table of the tasks' speed."""
    return Table(
        title=f"Tasks of run {_run_id(found)}",
        columns=("task", *_headings(_SPEED)),
        rows=[(name, *_cells(_SPEED, figures(tasks))) for name, tasks in _rows(reports)],
        numbers=len(_SPEED),
    )


def _rows(reports: Sequence[TaskReport]) -> Iterator[tuple[str, Sequence[TaskReport]]]:
    """Yield the rows: the slowest tasks first, one each, then one for the others together."""
    tasks = slowest_first(reports)
    for task in tasks[:_TASKS]:
        yield task.task_id, [task]
    if others := tasks[_TASKS:]:
        yield f"{len(others)} others", others


def _calls(found: RunStatus, reports: Sequence[TaskReport]) -> Iterator[Table]:
    """Yield the tables of calls, by task and node, and of the threads that run them; none without calls."""
    rows = [*_rows(reports)]
    if len(rows) > _TASKS:  # tasks that share a row are of one subtopology
        others = by_subtopology(rows.pop()[1])
        rows += [(f"{len(tasks)} others of {number}", tasks) for number, tasks in others.items()]
    calling = [(name, tasks) for name, tasks in rows if calls_in_all(tasks) is not None]
    if not calling:
        return
    run = found.continuous or found.slice
    purposes = {} if run is None else run.plan.topology.purposes
    yield Table(
        title=f"Calls of run {_run_id(found)}",
        columns=("task", "node", *_headings(_CALLS)),
        rows=[
            (name, shown_node(node, purposes), *_cells(_CALLS, of_node))
            for name, tasks in calling
            for node, of_node in (node_figures(tasks) or {"unknown": dict.fromkeys(NODE_UNITS)}).items()
        ],
        numbers=len(_CALLS),
        keys=2,
    )
    yield Table(
        title=f"Threads of calls of run {_run_id(found)}",
        columns=("task", *_headings(_THREADS)),
        rows=[(name, *_cells(_THREADS, thread_figures(tasks))) for name, tasks in calling],
        numbers=len(_THREADS),
    )


def _headings(columns: Sequence[_Column]) -> Iterator[str]:
    return (heading for heading, _, _ in columns)


def _cells(columns: Sequence[_Column], found: Mapping[str, float | None]) -> Iterator[str]:
    return (text(found[name]) for _, name, text in columns)


def _run_id(found: RunStatus) -> str:
    run = found.continuous or found.slice
    return run.run_id if run is not None else ""
