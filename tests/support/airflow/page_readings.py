"""Makes up readings for pages: an application in one state, with any number of runs and partitions, whose
names and sentences are what a test makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_kstreams.batch.inspect.dead_letters import Fate
from airflow_kstreams.batch.inspect.runs.seen_runs import RunStateSeen
from airflow_kstreams.batch.ledger.history import How
from airflow_kstreams.batch.replay.selection import Letter
from airflow_kstreams.inspect import (
    Attempt,
    AuditRow,
    BetweenTopic,
    ComparedFigure,
    ComparedRuns,
    ExpectedTime,
    Failure,
    LandedRows,
    LetterGroup,
    NextRun,
    PartitionLag,
    PlannedPartition,
    PlannedTable,
    PlannedTopic,
    ReadAndWritten,
    ReadOffsets,
    RunAudit,
    RunHistory,
    RunInFull,
    SeenApplication,
    SeenLag,
    SeenLetter,
    SeenLetters,
    SeenRun,
    SeenRuns,
    SeenTask,
    StateToRestore,
    StepTimes,
    Suspicion,
    TopicLag,
    WaitingRows,
    WindowsToClose,
)
from airflow_kstreams.pages.views import DagApplication, Frame, KeptRun
from tests.support.topology.records import FakeRecord

NOW_MS = 1_795_000_000_000
HOUR_MS = 3_600_000
#: What a letter quotes and holds: it must come onto no page.
VALUE, KEY = "planted-value-4711", "planted-key-4711"
FRAME = Frame(base="/kstreams", airflow="", at=datetime.fromtimestamp(NOW_MS / 1000, UTC))
#: State of a run -> the way its last attempt ended, where that has not finished it.
_ENDS = {"under way": None, "failed": How.FAILED, "unfinished": How.LOST}


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUp:
    """Readings of one application.

    :param told: makes what is read of each name and sentence that others may have written.
    :param state: state of the newest run.
    :param runs: number of runs; 0 for a new application.
    :param partitions: number of partitions with a lag.
    :param parked: records that the newest run has left parked.
    """

    told: Callable[[str], str] = str
    state: RunStateSeen = "finished"
    runs: int = 30
    partitions: int = 12
    parked: int = 0

    @property
    def app(self) -> DagApplication:
        return DagApplication(
            application_id=self.told("flight-delays"),
            dag_id=self.told("flights_hourly"),
            task_ids=(self.told("capture"), self.told("process")),
            kafka_conn_id=self.told("kafka_default"),
            team=self.told("air"),
        )

    @property
    def failure(self) -> Failure:
        return Failure(
            kind=self.told("TaskError"),
            cause=self.told("task 0_3 of run scheduled__29 failed at flights-3@4711: 4 attempts"),
            code=self.told("KS-TASK-001"),
            remedy=self.told("mend the function at delays.py:21, then clear the DAG run"),
        )

    def run_id(self, number: int) -> str:
        return self.told(f"scheduled__{number:05}")

    def seen_run(self, number: int) -> SeenRun:
        newest = number == self.runs - 1
        state: RunStateSeen = self.state if newest else "nothing new" if number % 7 == 3 else "finished"
        if not newest and number % 11 == 5:
            state = "failed"
        done = state in ("finished", "nothing new", "taken back")
        records = 0 if state == "nothing new" else 40_000 + number * 37 % 9_000
        begun_ms = NOW_MS - (self.runs - number) * HOUR_MS
        seconds = 12.0 if state == "nothing new" else 190.0 + number * 13 % 70
        return SeenRun(
            run_id=self.run_id(number),
            state=state,
            dag_id=self.app.dag_id,
            begun_ms=begun_ms,
            finished_ms=begun_ms + round(seconds * 1000) if done else None,
            seconds=seconds,
            generation=2 if number % 9 == 2 else 1,
            attempts=2 if number % 9 == 2 else 1,
            interval_ms=(begun_ms - HOUR_MS, begun_ms),
            records_in=records,
            records_out=records // 3,
            late=17 if number % 10 == 4 else 0,
            dead_lettered=2 if number % 13 == 6 else 0,
            skipped=0,
            parked=self.parked if newest else 0,
            warnings=(self.told("2 records behind the cut are dated before it"),) if newest else (),
            tables=(
                LandedRows(
                    table=self.told("delays"), sequence=7, snapshot=self.told("8812"), rows=900, files=3
                ),
            )
            if newest
            else (),
            failure=self.failure if state == "failed" else None,
            suspicions=(self.suspicion,) if newest else (),
        )

    @property
    def suspicion(self) -> Suspicion:
        return Suspicion(
            rule="fewer",
            text=self.told(
                "1,200 records in, far fewer than the 41,000 of the middle one of the last 10 runs"
            ),
            figure=1_200,
            usual=41_000,
            setting=self.told("suspicion.records.times"),
            threshold=5,
            source="run",
        )

    @property
    def seen_runs(self) -> SeenRuns:
        return SeenRuns(
            application_id=self.app.application_id,
            finished=self.runs,
            runs=tuple(map(self.seen_run, reversed(range(self.runs)))),
            looked_at=self.runs,
            next_before=self.run_id(0) if self.runs else None,
            not_seen=(self.told("the time was over: only 30 runs could be looked at"),),
        )

    @property
    def application(self) -> SeenApplication:
        newest = self.seen_run(self.runs - 1)
        return SeenApplication(
            application_id=self.app.application_id,
            finished=self.runs,
            last=newest if newest.finished_ms else self.seen_run(self.runs - 2),
            works_on=newest.run_id if self.state == "under way" else None,
            failed=newest.run_id if self.state == "failed" else None,
        )

    @property
    def lag(self) -> SeenLag:
        under_way = self.state == "under way"
        topics = (self.told("flights"), self.told("weather"), self.told("flights-checked"))
        parts = tuple(
            PartitionLag(
                topic=topics[number % 5 == 4],
                partition=number,
                start=1_000 if under_way else None,
                position=1_000 + (number * 97 % 500 if under_way else 0),
                stop=1_600 if under_way else None,
                end=1_600 + number * 53 % 800,
                lag=600 + number * 53 % 800 - (number * 97 % 500 if under_way else 0),
            )
            for number in range(self.partitions)
        )
        ordered = tuple(sorted(parts, key=lambda part: -(part.lag or 0)))
        lag = sum(part.lag or 0 for part in parts)
        return SeenLag(
            application_id=self.app.application_id,
            now_ms=NOW_MS,
            lag=lag,
            of_run=lag // 2 if under_way else 0,
            run_id=self.run_id(self.runs - 1) if under_way else None,
            driver=self.told("driver-7 on node-3") if under_way else None,
            parked=self.parked,
            last_begun_ms=NOW_MS - HOUR_MS if self.runs else None,
            topics=tuple(
                TopicLag(
                    topic=topic,
                    between=number == 2,
                    partitions=self.partitions,
                    gone=0,
                    lag=lag if not number else 0,
                    of_run=0,
                    largest=max((part.lag or 0 for part in parts), default=0),
                    read_to_ms=NOW_MS - HOUR_MS,
                )
                for number, topic in enumerate(topics)
            ),
            partitions=ordered,
            more_partitions=0,
            suspicions=(self.suspicion,),
        )

    @property
    def letters(self) -> SeenLetters:
        kind = self.told("airflow_kstreams.streams.errors.RecordError")
        topic, node = self.told("flights"), self.told("KSTREAM-MAP-0000000002")
        group = LetterGroup(
            topic=topic,
            node=node,
            exception=kind,
            letters=12,
            waiting=9,
            replayed=3,
            first_ms=0,
            last_ms=NOW_MS,
        )
        value = self.told(f'{{"secret": "{VALUE}"}}')
        facts = {
            "exception": kind,
            "node": node,
            "message": f"cannot parse {value}",
            "stacktrace": value,
            "purpose": value,
            "topic": topic,
            "partition": "3",
            "offset": "4711",
        }
        headers = [
            (f"__streams.errors.{name}", text.encode("utf-8", "replace")) for name, text in facts.items()
        ]
        record = FakeRecord(
            at=17,
            key_bytes=KEY.encode(),
            value_bytes=value.encode("utf-8", "replace"),
            timestamp_ms=NOW_MS,
            in_topic=self.told("flight-delays-dead-letters"),
            header_list=[("own-header", VALUE.encode()), *headers],
        )
        return SeenLetters(
            topic=self.told("flight-delays-dead-letters"),
            groups=(group,),
            newest=(SeenLetter(Letter.of(record), Fate.WAITING),),
        )

    @property
    def history(self) -> RunHistory:
        begun = NOW_MS - HOUR_MS
        steps = [
            StepTimes("freeze", begun, begun + 900),
            StepTimes("fence", begun + 900, begun + 1_400),
            *(
                step
                for sub in (0, 1)
                for step in (
                    StepTimes("wait", begun + 1_400, begun + 1_400 + sub * 90_000, sub),
                    StepTimes("restore", begun + 2_000 + sub * 90_000, begun + 9_000 + sub * 90_000, sub),
                    StepTimes("process", begun + 9_000 + sub * 90_000, begun + 92_000 + sub * 90_000, sub),
                    StepTimes(
                        "commit", begun + 12_000 + sub * 90_000, begun + 92_000 + sub * 90_000, sub, "", 4_100
                    ),
                )
            ),
            StepTimes("process", begun + 9_000, begun + 92_000, 0, self.told("0_3")),
            StepTimes("finish", begun + 182_000, begun + 183_000),
        ]
        first = Attempt(
            part="capture",
            owner=self.told("capture of flights_hourly"),
            order=(0, 1),
            begun_ms=begun,
            how=How.DONE,
            ended_ms=begun + 3_000,
        )
        lost = Attempt(
            part="driver",
            owner=self.told("driver-6 on node-1"),
            order=(0, 1),
            begun_ms=begun + 5_000,
            generation=1,
            ended_ms=begun + 60_000,
            how=How.TAKEN_OVER,
            failure=self.failure,
        )
        last = Attempt(
            part="driver",
            owner=self.told("driver-7 on node-3"),
            order=(0, 2),
            begun_ms=begun + 70_000,
            generation=2,
            ended_ms=0 if self.state == "under way" else begun + 190_000,
            how={"under way": None, "failed": How.FAILED, "unfinished": How.LOST}.get(
                self.state, How.FINISHED
            ),
            failure=self.failure if self.state == "failed" else None,
            steps=tuple(steps),
        )
        return RunHistory(
            run_id=self.run_id(self.runs - 1), attempts=(first, lost, last), dag_id=self.app.dag_id
        )

    @property
    def in_full(self) -> RunInFull:
        flights, weather, between, out = map(self.told, ("flights", "weather", "flights-checked", "delays"))
        return RunInFull(
            application_id=self.app.application_id,
            run=self.seen_run(self.runs - 1),
            topology=self.told("0f1e2d3c4b5a69788796a5b4"),
            autostop_at=self.told("interval_end"),
            read=(ReadOffsets(topic=flights, partitions=12, start=10, stop=41_010),),
            subtopologies=(
                ReadAndWritten(id=0, reads=(flights, weather), writes=(between,)),
                ReadAndWritten(id=1, reads=(between,), writes=(out,)),
            ),
            audit=RunAudit(
                read=82_000,
                left_out=1_020,
                made=-66_980,
                written=14_000,
                outside=3,
                rows=(
                    AuditRow(place=flights, what="read", records=41_000),
                    AuditRow(place=weather, what="read", records=1_000),
                    AuditRow(place=between, what="written", records=40_000),
                    AuditRow(place=between, what="read", records=40_000),
                    AuditRow(place=self.told("KSTREAM-MAP-0000000002"), what="dead-lettered", records=2),
                    AuditRow(place=out, what="written", records=14_000),
                ),
                between=(BetweenTopic(topic=between, written=40_000, read=39_999, missing=1),),
            ),
            waiting=(WaitingRows(table=self.told("delays"), rows=900, files=3),)
            if self.state == "under way"
            else (),
            task_count=24,
            tasks=tuple(
                SeenTask(
                    task=self.told(f"0_{number}"),
                    seconds=90 - number * 3.5,
                    records_in=4_000,
                    records_out=1_300,
                    restored=120,
                    commits=4,
                    attempts=1,
                    peak_memory_bytes=210_000_000,
                )
                for number in range(12)
            ),
            history=self.history,
            not_seen=(self.told("nothing but this"),),
        )

    @property
    def compared(self) -> ComparedRuns:
        figures = (
            ("records in", 41_000, 1_200),
            ("seconds", 190, 12.5),
            (self.told("flights: read"), 41_000, None),
        )
        return ComparedRuns(
            first=self.in_full,
            second=MadeUp(told=self.told, state="failed", runs=29).in_full,
            other_topology=True,
            figures=tuple(ComparedFigure(what=what, first=one, second=two) for what, one, two in figures),
        )

    @property
    def plan(self) -> NextRun:
        return NextRun(
            application_id=self.app.application_id,
            now_ms=NOW_MS,
            kind="refused",
            run_id=self.run_id(self.runs),
            autostop_at=self.told("eol"),
            interval_ms=(NOW_MS - HOUR_MS, NOW_MS),
            records=41_000,
            tasks=24,
            parked={self.told("CALL-0000000004"): 7},
            topics=(PlannedTopic(topic=self.told("flights"), partitions=12, records=41_000),),
            partitions=tuple(
                PlannedPartition(topic=self.told("flights"), partition=number, start=0, stop=3_000)
                for number in range(self.partitions)
            ),
            state=(
                StateToRestore(
                    store=self.told("totals"),
                    changelog=self.told("totals-changelog"),
                    partitions=12,
                    records=9,
                ),
            ),
            windows=(
                WindowsToClose(subtopology=1, stream_time_ms=NOW_MS, to_ms=NOW_MS, tasks=12, tasks_due=3),
            ),
            tables=(PlannedTable(name=self.told("delays"), format="iceberg", sequence=8, state=None),),
            refused=self.failure,
            creates=(self.told("flights-checked"),),
            warnings=(self.told("flights has fewer replicas than the cluster's default"),),
            expected=ExpectedTime(seconds=190, least=160, most=230, runs=10),
            not_seen=(self.told("tables: it was not said where they are"),),
        )

    def kept(self, state: str = "success") -> KeptRun:
        return KeptRun(
            dag_id=self.app.dag_id,
            task_id=self.told("process"),
            airflow_run_id=self.run_id(3),
            ended_at=FRAME.at,
            state=state,
            figures={
                "records_in": 41_000,
                "records_out": self.told(VALUE),
                "records_late": True,
                "parked": {self.told("CALL-0000000004"): 7},
                "note": self.told(VALUE),
            },
        )
