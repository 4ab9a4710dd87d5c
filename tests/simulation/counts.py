"""Whether what the finished runs say of themselves is what a person would count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from airflow_kstreams.streams.ports import TopicPartition
from tests.simulation.expectations import Expectations, ViolationError
from tests.simulation.history import Counts, History, TopicCounts
from tests.simulation.sometimes import sometimes
from tests.simulation.stage_oracles import given_by, groups_of, subtopology_of
from tests.simulation.stages import DEAD_LETTERS, TABLE_FILES, Tables


def counts_are_exact(history: History, expected: Expectations) -> None:
    """Every task of every finished run counted what it took, sent, dropped and gave up, whatever died, and
    has measured the time of each record that it took once.
    """
    if (expected.parks or expected.application.has_tables_of_tables) and expected.exactly_once:
        _check_totals(history, expected)
    for run, finished in enumerate(history.finished):
        for task, counted, known in _tasks(run, history, expected):
            reported = finished.counts.get(task, Counts())
            if expected.parks:
                # Records come to their ends in the runs in which their calls do.
                reported = replace(reported, sent=counted.sent, dead_lettered=counted.dead_lettered)
            elif not known:
                reported = replace(reported, sent=0)
            if reported != counted:
                raise ViolationError(
                    f"run {finished.run_id}, task {task} reports {reported}, there were {counted}"
                )
            if finished.measured.get(task, reported.taken) != reported.taken:
                raise ViolationError(
                    f"run {finished.run_id}, task {task} measured {finished.measured[task]} records, "
                    f"it took {reported.taken}"
                )
            if counted != Counts() and any(name.startswith(f"task {task} ") for _, name in history.deaths):
                sometimes("a task's counts went through a crash")


def counts_by_topic_are_exact(history: History, expected: Expectations) -> None:
    """Every finished run says what it read and wrote by topic, and what was late or a dead letter."""
    stages = expected.application.stages
    for run, finished in enumerate(history.finished if stages else ()):
        if finished.by_topic is None:
            continue
        read = {
            topic: sum(len(history.per_run(tp)[run]) for tp in list(history.logs) if tp.topic == topic)
            for sources, _ in expected.application.subtopologies
            for topic in sources
            if topic != TABLE_FILES
        }
        written: Counter[str] = Counter()
        left_out: Counter[str] = Counter()
        for stage in stages:
            for group in groups_of(stage, expected):
                given = given_by(stage, group, history, expected)
                written[stage.sink] += sum(result.run == run for result in given.results)
                left_out["late"] += given.dropped.count(run)
                left_out["dead-lettered"] += sum(at == run for _, at in given.failed)
        # What filters leave out is no loss, and the oracles do not say where a filter stands.
        sinks = {stage.sink for stage in stages if not isinstance(stage, Tables)}
        told = replace(
            finished.by_topic,
            written={topic: n for topic, n in finished.by_topic.written.items() if topic in sinks},
            left_out={rule: n for rule, n in finished.by_topic.left_out.items() if rule != "filtered"},
        )
        written = Counter({topic: n for topic, n in written.items() if topic in sinks})
        counted = TopicCounts(dict(+Counter(read)), dict(+written), dict(+left_out))
        if expected.parks:
            late = {"late": left_out["late"]} if left_out["late"] else {}
            counted = replace(counted, written=told.written, left_out=late)
            told = replace(told, left_out={rule: n for rule, n in told.left_out.items() if rule == "late"})
        if told != counted:
            raise ViolationError(f"run {finished.run_id} reports {told}, there were {counted}")


def _check_totals(history: History, expected: Expectations) -> None:
    """Check what all runs have sent and given up, by subtopology: nothing is parked any more."""
    for number, (sources, between) in enumerate(expected.application.subtopologies):
        reported = [
            counts
            for run in history.finished
            for task, counts in run.counts.items()
            if task.startswith(f"{number}_")
        ]
        last = number == len(expected.application.subtopologies) - 1
        there = sum(
            (topic, entry.value) not in expected.outsiders
            for topic in (*between, *(("out",) if last else ()))
            for log in history.topic(topic).values()
            for entry in log
        )
        letters = sum(
            entry.headers["__streams.errors.topic"] in sources
            for log in history.topic(DEAD_LETTERS).values()
            for entry in log
        )
        told = sum(counts.sent for counts in reported), sum(counts.dead_lettered for counts in reported)
        if told != (there, letters):
            raise ViolationError(f"tasks of {number} report {told} sent and given up, {there, letters} are")


def _tasks(run: int, history: History, expected: Expectations) -> Iterator[tuple[str, Counts, bool]]:
    """Give each task, what there is of it, and whether that is known of what it sent."""
    stages = [stage for stage in expected.application.stages if not isinstance(stage, Tables)]
    subtopologies = expected.application.subtopologies if expected.application.stages else ()
    for number, (sources, _) in enumerate(subtopologies):
        if TABLE_FILES in sources:
            continue  # no task reads that
        its_stages = [stage for stage in stages if subtopology_of(stage, expected) == number]
        for group in range(max(expected.partitions[topic] for topic in sources)):
            given = [given_by(stage, group, history, expected) for stage in its_stages]
            taken = sum(len(history.per_run(TopicPartition(topic, group))[run]) for topic in sources)
            yield (
                f"{number}_{group}",
                Counts(
                    taken,
                    sum(result.run == run for one in given for result in one.results),
                    sum(dropped == run for one in given for dropped in one.dropped),
                    sum(at == run for one in given for _, at in one.failed),
                ),
                bool(its_stages),
            )
