"""Makes tables of what was read, for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_kstreams.batch.inspect.ahead.lag import SeenLag
from airflow_kstreams.batch.inspect.ahead.next_run import NextRun, WindowsToClose
from airflow_kstreams.batch.inspect.applications import SeenApplication, SeenApplications
from airflow_kstreams.batch.inspect.diagnosis import Diagnosis
from airflow_kstreams.batch.inspect.runs.audit import RunAudit
from airflow_kstreams.batch.inspect.runs.run_in_full import ComparedRuns, RunInFull
from airflow_kstreams.batch.inspect.runs.seen_runs import SeenRun, SeenRuns
from airflow_kstreams.batch.inspect.runs.suspicions import Suspicion
from airflow_kstreams.batch.inspect.tables.listed_files import waiting_lines
from airflow_kstreams.batch.ledger.history import Failure, RunHistory
from airflow_kstreams.batch.protocol.step_times import StepTimes
from airflow_kstreams.explore.tables import Table
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.time_texts import ago_text, duration_text, time_text


def tables_of_applications(found: SeenApplications) -> Iterator[Table]:
    """Yield the table of a cluster's applications."""
    yield Table(
        title="Applications",
        columns=("application", "state", "last finished (UTC)", "runs", "in", "out"),
        rows=[
            (
                each.application_id,
                _state(each),
                "-" if each.last is None else time_text(each.last.finished_ms or 0),
                number_text(each.finished),
                number_text(None if each.last is None else each.last.records_in),
                number_text(None if each.last is None else each.last.records_out),
            )
            for each in found.applications
        ],
        numbers=3,
    )


def notes_of_applications(found: SeenApplications) -> Iterator[str]:
    """Yield what was not looked at, and how to look at one of them."""
    yield from (f"Not looked at: {text}" for text in found.not_seen)
    if found.applications:
        yield "More of one: airflow-kstreams status --application-id ID"
    else:
        yield "No application has begun a run here."


def _state(found: SeenApplication) -> str:
    if found.works_on is not None:
        return "running"
    return "failed" if found.failed is not None else "-" if found.finished is None else "idle"


def tables_of_diagnosis(found: Diagnosis) -> Iterator[Table]:
    """Yield the table of the doctor's findings."""
    yield Table(
        title=f"What the doctor found of {found.application_id}",
        columns=("", "check", "code", "found", "what to do"),
        rows=[(each.level.value, each.check, each.code, each.text, each.fix) for each in found.findings],
    )


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
                duration_text(run.seconds * 1000),
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
        if run.failure is not None:
            yield f"{run.run_id}: {run.failure.coded_cause}"
            yield from _remedy(run.failure)
        for suspicion in run.suspicions:
            yield f"{run.run_id}: {odd_text(suspicion)}"
    yield from found.not_seen
    if found.next_before is not None:
        in_all = counted(found.finished, "run")
        yield f"Older ones: --before '{found.next_before}'. Finished in all: {in_all}."


def tables_of_run(found: RunInFull) -> Iterator[Table]:
    """Yield the tables of one run: what it is, its snapshots, its books, its attempts, its steps, and its
    slowest tasks.
    """
    yield facts_of_run(found)
    yield from snapshots_of_run(found.run)
    if found.audit is not None:
        yield books_of_run(found.audit)
    if found.history is not None:
        yield attempts_of_run(found.history)
        steps = [step for each in found.history.attempts[-1:] for step in each.steps]
        if steps:
            yield table_of_steps("Steps of the last attempt", steps)
    if found.tasks:
        yield slowest_tasks(found)


def facts_of_run(found: RunInFull) -> Table:
    """Return the table of what a run is."""
    return Table(
        title=f"Run {found.run.run_id} of {found.application_id}",
        columns=("what", "is"),
        rows=[*_facts(found)],
    )


def snapshots_of_run(run: SeenRun) -> Iterator[Table]:
    """Yield the table of the snapshots that a run has made, if it has made some."""
    if run.tables:
        yield Table(
            title="Snapshots of tables",
            columns=("table", "snapshot", "sequence", "rows", "files", "bytes rewritten"),
            rows=[
                (
                    each.table,
                    each.snapshot or "-",
                    *map(number_text, (each.sequence, each.rows, each.files, each.rewritten_bytes)),
                )
                for each in run.tables
            ],
            numbers=4,
        )


def slowest_tasks(found: RunInFull) -> Table:
    """Return the table of a run's slowest tasks."""
    return Table(
        title="Slowest tasks",
        columns=("task", "took", "in", "out", "restored", "commits", "attempts"),
        rows=[
            (
                task.task,
                duration_text(task.seconds * 1000),
                *map(number_text, (task.records_in, task.records_out, task.restored)),
                *map(number_text, (task.commits, task.attempts)),
            )
            for task in found.tasks
        ],
        numbers=6,
        more=found.task_count - len(found.tasks),
    )


def notes_of_run(found: RunInFull) -> Iterator[str]:
    """Yield what is odd about a run, why it failed, its warnings, and what was not looked at."""
    failure = None if found.history is None else found.history.failure
    if failure is not None:
        yield failure.in_one_line
        yield from _remedy(failure)
    yield from (odd_text(suspicion) for suspicion in found.run.suspicions)
    yield from (f"Warning: {warning}" for warning in found.run.warnings)
    yield from (f"Not looked at: {text}" for text in found.not_seen)


def _facts(found: RunInFull) -> Iterator[tuple[str, str]]:
    run = found.run
    yield "state", run.state
    yield "begun (UTC)", time_text(run.begun_ms)
    if run.finished_ms is not None:
        yield "finished (UTC)", time_text(run.finished_ms)
    yield "took", duration_text(run.seconds * 1000)
    if run.dag_id:
        yield "DAG", run.dag_id
    if run.interval_ms is not None:
        yield "data interval (UTC)", " to ".join(map(time_text, run.interval_ms))
    yield "drivers", number_text(run.generation)
    if run.attempts:
        yield "attempts", number_text(run.attempts)
    yield "tasks", number_text(found.task_count)
    yield "records", f"{number_text(run.records_in)} in, {number_text(run.records_out)} out"
    for what in ("late", "dead_lettered", "skipped", "parked"):
        if (count := getattr(run, what)) != 0:
            yield what.replace("_", "-"), number_text(count)
    for read in found.read:
        yield (
            f"read of {read.topic}",
            (f"{counted(read.stop - read.start, 'offset')}, {counted(read.partitions, 'partition')}"),
        )
    yield from waiting_lines(found.waiting)
    yield "topology", found.topology[:12]


def books_of_run(audit: RunAudit) -> Table:
    """Return the table of a run's books, under their sum."""
    made = f" + made by operators {audit.made:,}" if audit.made > 0 else ""
    taken = f" + taken in by operators {-audit.made:,}" if audit.made < 0 else ""
    rows = [(row.place, row.what, f"{row.records:,}") for row in audit.rows]
    rows += [
        (each.topic, "written and not read", f"{each.missing:,}") for each in audit.between if each.missing
    ]
    return Table(
        title=f"Records: read {audit.read:,}{made} = written {audit.written:,} + left out "
        f"{audit.left_out:,}{taken}",
        columns=("topic or node", "what", "records"),
        rows=rows,
        numbers=1,
    )


def attempts_of_run(history: RunHistory) -> Table:
    """Return the table of a run's attempts."""
    return Table(
        title="Attempts",
        columns=("part", "begun (UTC)", "took", "ended", "try", "by", "failure"),
        rows=[
            (
                each.part,
                time_text(each.begun_ms),
                duration_text(each.ended_ms - each.begun_ms) if each.ended_ms else "",
                "" if each.how is None else each.how.value,
                "" if each.trial is None else str(each.trial),
                each.owner,
                "" if each.failure is None else each.failure.kind,
            )
            for each in history.attempts
        ],
        more=history.omitted,
    )


def table_of_steps(title: str, steps: Iterable[StepTimes]) -> Table:
    """Return the table of the steps of an attempt.

    :param title: above the table.
    """
    return Table(
        title=title,
        columns=("step", "of", "begun (UTC)", "took"),
        rows=[
            (
                step.name,
                step.task or ("run" if step.subtopology < 0 else f"subtopology {step.subtopology}"),
                time_text(step.begun_ms),
                duration_text(step.milliseconds),
            )
            for step in steps
        ],
        numbers=1,
    )


def tables_of_comparison(found: ComparedRuns) -> Iterator[Table]:
    """Yield the table of two runs beside each other."""
    yield Table(
        title=f"First {found.first.run.run_id}, second {found.second.run.run_id}",
        columns=("", "first", "second", "change"),
        rows=[
            ("state", found.first.run.state, found.second.run.state, ""),
            ("begun (UTC)", time_text(found.first.run.begun_ms), time_text(found.second.run.begun_ms), ""),
            *(
                (each.what, _figure(each.first), _figure(each.second), _change(each.first, each.second))
                for each in found.figures
            ),
        ],
        numbers=3,
    )


def notes_of_comparison(found: ComparedRuns) -> Iterator[str]:
    """Yield what both runs cannot be compared in, and what is odd about each."""
    if found.other_topology:
        yield "They ran different topologies: nodes of one name may be different nodes."
    for each in (found.first, found.second):
        yield from (f"{each.run.run_id}: {odd_text(suspicion)}" for suspicion in each.run.suspicions)
        yield from (f"{each.run.run_id}: not looked at: {text}" for text in each.not_seen)


def _figure(number: float | None) -> str:
    return "-" if number is None else f"{number:,.3f}".rstrip("0").rstrip(".")


def _change(first: float | None, second: float | None) -> str:
    if first is None or second is None or first == second:
        return ""
    return f"{second / first - 1:+.0%}" if first else "new"


def _remedy(failure: Failure) -> Iterator[str]:
    if failure.remedy:
        yield f"What to do: {failure.remedy}"


def odd_text(suspicion: Suspicion) -> str:
    """Return what is odd, with the setting that has the threshold, and its source if that is not the run."""
    source = {"run": "", "given": ", as given", "default": ", its default"}[suspicion.source]
    return f"{suspicion.text} ({suspicion.setting}={suspicion.threshold:g}{source})"


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
    since = "no run has begun" if begun is None else f"the last run began {ago_text(found.now_ms, begun)}"
    yield f"Offsets that wait in inputs: {found.lag:,}; {since}."
    if found.run_id is not None:
        driver = f"driver {found.driver} has the lease" if found.driver else "no driver works on it"
        yield f"Run {found.run_id} is under way, {driver}; {found.of_run:,} of them are its own."
    if found.parked != 0:
        yield f"Parked records that wait: {number_text(found.parked)}."
    for suspicion in found.suspicions:
        yield f"Odd: {odd_text(suspicion)}"


_KINDS = {
    "new": "a new slice would be frozen",
    "resume": "an unfinished run would be resumed",
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
        rows.append(("reads", f"at most {counted(found.records, 'record')}, {counted(found.tasks, 'task')}"))
    if found.interval_ms is not None:
        rows.append(("data interval (UTC)", " to ".join(map(time_text, found.interval_ms))))
    if found.expected is not None:
        expected = found.expected
        least, most = duration_text(expected.least * 1000), duration_text(expected.most * 1000)
        took = duration_text(expected.seconds * 1000)
        rows.append(("takes about", f"{took} ({least} to {most}, by {counted(expected.runs, 'run')})"))
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
    yield from _planned_tables(found)
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


def _planned_tables(found: NextRun) -> Iterator[Table]:
    if found.tables:
        yield Table(
            title="Tables",
            columns=("table", "format", "begin", "commit"),
            rows=[
                (each.name, each.format, each.state or "not looked at", number_text(each.sequence or None))
                for each in found.tables
            ],
            numbers=1,
        )


def notes_of_plan(found: NextRun) -> Iterator[str]:
    """Yield the refusal with its remedy, warnings, and what was not looked at."""
    if found.refused is not None:
        yield found.refused.in_one_line
        yield from _remedy(found.refused)
    yield from (f"Warning: {warning}" for warning in found.warnings)
    yield from (f"Not looked at: {text}" for text in found.not_seen)
    yield "Nothing was written."


def _closing(windows: WindowsToClose) -> str:
    now = "no record yet" if windows.stream_time_ms is None else f"at {time_text(windows.stream_time_ms)}"
    if windows.to_ms is None:
        return f"{now}; new records decide which close"
    due = "an unknown number" if windows.tasks_due is None else f"{windows.tasks_due:,}"
    tasks = counted(windows.tasks, "task")
    return f"{now}, brought to {time_text(windows.to_ms)} at least: published by {due} of {tasks}"


def _lost(run: SeenRun) -> int | None:
    """Return the number of records that were late, dead-lettered, skipped or parked; None if not known."""
    lost = [run.late, run.dead_lettered, run.skipped, run.parked]
    known = [count for count in lost if count is not None]
    return sum(known) if len(known) == len(lost) else None


def number_text(number: int | None) -> str:
    """Return a number, a dash where it is not known."""
    return "-" if number is None else f"{number:,}"
