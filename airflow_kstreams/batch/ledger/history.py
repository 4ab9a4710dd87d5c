"""Holds what happened to runs: their attempts, how each ended, with which failure, and when its steps began
and ended.

Where it is kept: of a run that is not finished in the record ``__history__`` of the ledger, together with
other runs that have not finished, the last few; of a finished run in its details, for as long as the ledger
keeps those (``ledger.details.kept``).

Rule: an attempt is written in the transaction that it makes in any case: when it begins, with its lease; when
it ends, with the release of the lease; when the run is finished, with the run's entry. Only a begin or a
finish that fails without a lease has a transaction of its own. Each is made under the claim of the
coordinator's id: a driver that was superseded writes nothing. The next begin finds that an attempt has no
end, and notes so. Of a failure outside any claim the Airflow task tells
(:mod:`airflow_kstreams.batch.run.reported_failures`), and the next begin or finish puts it here.

Invariant: nothing is decided by a history. One that cannot be read is counted and said, and the next attempt
begins another.

Crash argument: before its commit a transaction changes nothing. An attempt whose begin is written, and whose
driver dies at any line behind it, has no end in the record; the next begin, which reads it under its claim,
notes that it went silent. A crash of that begin leaves it as it was.

A failure holds no data: the text of this package's errors names places and never repeats a record
(:mod:`airflow_kstreams.streams.hints.hidden_values`); of any other error only the class is kept, and no
traceback of either. All of it is bounded: texts, steps, attempts and runs have a largest number, and the
record has a largest size.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from airflow_kstreams.batch.protocol.checked_reading import UnreadableError, read_json
from airflow_kstreams.batch.protocol.step_times import StepTimes
from airflow_kstreams.streams.errors import (
    KafkaClientError,
    KilledError,
    KStreamsError,
    ReportedError,
    with_code,
)
from airflow_kstreams.streams.plan import Moment
from airflow_kstreams.streams.printable import printable

HISTORY_KEY = "__history__"

#: Number of attempts that a run keeps: the first one, and the last ones.
MOST_ATTEMPTS = 20
#: Number of runs that have not finished and are kept.
MOST_RUNS = 10
#: Number of steps that an attempt keeps.
MOST_STEPS = 150
#: Longest text of a failure, and longest name of an owner.
MOST_TEXT, MOST_NAME = 1_000, 200
#: Largest size of the JSON of a run's history in bytes, and of the record of those that have not finished.
MOST_BYTES = 100_000
_CUT = " ... (cut)"
#: Orders from here on are times, in epoch milliseconds: no Airflow task is tried so often.
_TIMES_FROM_MS = 1_000_000_000

#: The part of a run that an attempt works on.
Part = Literal["capture", "driver", "continuous", "finish"]


class How(enum.Enum):
    """The way an attempt ended."""

    #: The run is finished.
    FINISHED = "finished"
    #: Its part is done, and another Airflow task goes on.
    DONE = "done"
    FAILED = "failed"
    #: It was asked to end before it was done.
    STOPPED = "stopped"
    #: It went silent: its process was killed, its machine died, or Kafka could not be reached.
    LOST = "lost"
    #: Another attempt took its work while it may have been alive.
    TAKEN_OVER = "taken over"


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The error that ended an attempt, or with which a begin would fail now, without data of records.

    :param kind: class of the error.
    :param cause: one line: what happened, where, found and expected.
    :param remedy: one line: what to do; empty if there is none.
    :param code: what names the error in texts and in the reference; empty for one of another package.
    :param kafka_code: Kafka's name of the error; empty for any other error.
    :param retriable: whether a retry without a change can succeed.
    """

    kind: str
    cause: str
    remedy: str = ""
    code: str = ""
    kafka_code: str = ""
    retriable: bool = True

    @property
    def coded_cause(self) -> str:
        """Its cause and its code, in one line."""
        return with_code(self.cause, self.code)

    @property
    def in_one_line(self) -> str:
        """Its class, its cause and its code."""
        return f"{self.kind}: {self.coded_cause}"

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure that an error is."""
        if not isinstance(error, KStreamsError):
            return cls(
                kind=_cut(type(error).__name__, MOST_NAME),
                cause=f"an error that is none of airflow-kstreams: {_cut(type(error).__name__, MOST_NAME)}",
                remedy="read the log of the driver, or of the Airflow task, for its text and place",
            )
        kafka_code = error.kafka_code if isinstance(error, KafkaClientError | ReportedError) else ""
        return cls(
            kind=_cut(error.type_name, MOST_NAME),
            cause=_cut(error.cause, MOST_TEXT),
            remedy=_cut(error.fix, MOST_TEXT),
            code=_cut(error.code, MOST_NAME),
            kafka_code=_cut(kafka_code, MOST_NAME),
            retriable=error.is_retriable,
        )


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt at a run.

    :param part: the part of the run that it worked on.
    :param owner: its process or Airflow task, for messages.
    :param order: (clear number, try number).
    :param begun_ms: time at which it began, epoch milliseconds.
    :param for_run: the run that it was started for, where that is another one, which comes after this one.
    :param generation: generation of the slice, or of the continuous run, that it worked on; 0 where it had
        none.
    :param ended_ms: time at which it ended, epoch milliseconds; of one that went silent, the last
        time at which it renewed its lease; 0 as long as no end is known.
    :param how: the way it ended; None as long as no end is known.
    :param failure: the error that ended it; None without one.
    :param steps: the times of its steps, as far as it came to write them: those of the run, of each
        subtopology, and of the slowest tasks.
    """

    part: Part
    owner: str
    order: tuple[int, int]
    begun_ms: Moment
    for_run: str = ""
    generation: int = 0
    ended_ms: Moment = 0
    how: How | None = None
    failure: Failure | None = None
    steps: tuple[StepTimes, ...] = ()

    @property
    def trial(self) -> int | None:
        """Its try number in Airflow; None where none is known, and of a driver that a person started, whose
        order is the time of its start.
        """
        number = self.order[1]
        return number if 0 < number < _TIMES_FROM_MS else None

    @property
    def took_over(self) -> bool:
        """Whether it went on with the slice of an earlier attempt."""
        return self.part == "driver" and self.generation > 1

    def is_same(self, other: Attempt) -> bool:
        """Whether another one is the same attempt, in whichever state."""
        return (self.part, self.owner, self.order, self.generation, self.begun_ms) == (
            other.part,
            other.owner,
            other.order,
            other.generation,
            other.begun_ms,
        )

    def ended(
        self,
        how: How,
        ended_ms: int,
        *,
        failure: Failure | None = None,
        steps: Iterable[StepTimes] = (),
    ) -> Attempt:
        """Return it with its end.

        :param how: the way in which it ended.
        :param ended_ms: when, in epoch milliseconds.
        :param failure: why it failed; None if it did not.
        :param steps: steps to add to those it has.
        """
        return msgspec.structs.replace(
            self, how=how, ended_ms=ended_ms, failure=failure, steps=(*self.steps, *steps)[:MOST_STEPS]
        )


class RunHistory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The attempts at a run: the first one, and the last ones.

    :param run_id: id of the run.
    :param attempts: its attempts, the first one first.
    :param dag_id: the DAG that started it; empty if none.
    :param omitted: number of attempts between the first one and the others that are not kept.
    """

    run_id: str
    attempts: tuple[Attempt, ...] = ()
    dag_id: str = ""
    omitted: int = 0

    @property
    def last(self) -> Attempt | None:
        """The last attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def failure(self) -> Failure | None:
        """The failure of the last attempt; None if that has not failed, or is under way."""
        return None if self.last is None else self.last.failure

    @property
    def failed(self) -> tuple[Attempt, ...]:
        """The attempts that failed."""
        return tuple(attempt for attempt in self.attempts if attempt.how is How.FAILED)

    @property
    def takeovers(self) -> tuple[Attempt, ...]:
        """The attempts that went on with the slice of an earlier one."""
        return tuple(attempt for attempt in self.attempts if attempt.took_over)

    @property
    def number(self) -> int:
        """The number of its attempts, kept or not."""
        return len(self.attempts) + self.omitted

    def with_attempt(self, attempt: Attempt) -> RunHistory:
        """Return it with one more attempt; only the last one keeps all of its steps."""
        before = tuple(map(_without_tasks, self.attempts))
        kept = (*before, attempt)
        more = max(0, len(kept) - MOST_ATTEMPTS)
        if more:
            kept = (kept[0], *kept[1 + more :])
        return msgspec.structs.replace(self, attempts=kept, omitted=self.omitted + more)

    def without(self, attempt: Attempt) -> RunHistory:
        """Return it without an attempt, in whichever state it is kept."""
        others = tuple(each for each in self.attempts if not each.is_same(attempt))
        return msgspec.structs.replace(self, attempts=others)

    def noted(self, how: How, seen_ms: int) -> RunHistory:
        """Return it with an end of the attempts that have none.

        :param seen_ms: the last time at which such an attempt was seen at work, epoch milliseconds; 0 if it
            is not known.
        """
        return msgspec.structs.replace(
            self,
            attempts=tuple(
                each if each.how is not None else each.ended(how, max(seen_ms, each.begun_ms))
                for each in self.attempts
            ),
        )

    def bounded(self, most: int = MOST_BYTES) -> RunHistory:
        """Return as much of it as its JSON may hold: first the steps go, of the last attempt last, then the
        attempts between the first one and the last one, then the longer texts.
        """
        found = self
        for number in range(len(found.attempts)):
            if len(msgspec.json.encode(found)) <= most:
                return found
            attempts = [*found.attempts]
            attempts[number] = msgspec.structs.replace(attempts[number], steps=())
            found = msgspec.structs.replace(found, attempts=tuple(attempts))
        while len(msgspec.json.encode(found)) > most and len(found.attempts) > 2:
            kept = (found.attempts[0], *found.attempts[2:])
            found = msgspec.structs.replace(found, attempts=kept, omitted=found.omitted + 1)
        if len(msgspec.json.encode(found)) > most:
            return msgspec.structs.replace(found, attempts=found.attempts[-1:], omitted=self.number - 1)
        return found


class Histories(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The attempts at the last few runs that have not finished; one record of the ledger.

    :param runs: their histories, the run that was attempted last at the end.
    :param unreadable: number of begins that found a record which they could not read.
    """

    runs: tuple[RunHistory, ...] = ()
    unreadable: int = 0

    @property
    def last(self) -> RunHistory | None:
        """The history of the run that was attempted last."""
        return self.runs[-1] if self.runs else None

    def of(self, run_id: str) -> RunHistory | None:
        """Return the history of a run; None if nothing of it is kept."""
        return next((each for each in self.runs if each.run_id == run_id), None)

    def without(self, run_id: str) -> Histories:
        """Return the others."""
        return msgspec.structs.replace(self, runs=tuple(each for each in self.runs if each.run_id != run_id))

    def with_run(self, run: RunHistory, *, most_runs: int = MOST_RUNS) -> Histories:
        """Return them with the history of a run, which comes last."""
        runs = (*self.without(run.run_id).runs, run)
        return msgspec.structs.replace(self, runs=runs[-max(1, min(most_runs, MOST_RUNS)) :])

    def with_reported(self, reported: Histories, *, finished: Callable[[str], bool]) -> Histories:
        """Return them with the failures that Airflow tasks have reported, each once: the attempt gets that
        end where it is kept, else it is added.

        :param reported: attempts that have failed.
        :param finished: returns whether a run is finished, so that it does not matter any more.
        """
        found = self
        for run in reported.runs:
            if not finished(run.run_id):
                for attempt in run.attempts:
                    found = found._with_attempt(run, attempt)
        return found

    def _with_attempt(self, reported: RunHistory, attempt: Attempt) -> Histories:
        # A driver may have worked on an earlier run than that of its Airflow task.
        if any(_made(attempt, reported.run_id, each, run) for run in self.runs for each in run.attempts):
            runs = tuple(_with_end(run, attempt, reported.run_id) for run in self.runs)
            return msgspec.structs.replace(self, runs=runs)
        known = self.of(reported.run_id) or RunHistory(run_id=reported.run_id, dag_id=reported.dag_id)
        return self.with_run(known.with_attempt(attempt))

    def encode(self) -> bytes:
        """Return the JSON, of a bounded size: earlier runs go first."""
        found = msgspec.structs.replace(self, runs=tuple(run.bounded() for run in self.runs))
        while len(encoded := msgspec.json.encode(found)) > MOST_BYTES and len(found.runs) > 1:
            found = msgspec.structs.replace(found, runs=found.runs[1:])
        return encoded

    @classmethod
    def decode(cls, value: bytes | None) -> Histories:
        """Return what a record holds; one that cannot be read, or is gone, counts as unreadable."""
        try:
            return cls(unreadable=1) if value is None else read_json(value, cls)
        except UnreadableError:
            return cls(unreadable=1)


def how_ended(error: BaseException | None, *, otherwise: How) -> How:
    """Return how an attempt ended with an error, or without one.

    :param otherwise: the end to return where there was no error.
    """
    if error is None:
        return otherwise
    asked = isinstance(error, KilledError) or not isinstance(error, Exception)
    reported = isinstance(error, ReportedError) and error.error_type == KilledError.__name__
    return How.STOPPED if asked or reported else How.FAILED


def _made(reported: Attempt, run_id: str, attempt: Attempt, run: RunHistory) -> bool:
    """Return whether an Airflow task, a try of which makes one attempt at its part, has made an attempt. One
    that began before the task is of an earlier dag run of that name.

    :param reported: the attempt as the task reports it.
    :param run_id: the run of the task.
    :param run: the history that has the attempt.
    """
    made = (attempt.part, attempt.owner, attempt.order, attempt.for_run or run.run_id)
    same = made == (reported.part, reported.owner, reported.order, run_id)
    return same and attempt.begun_ms >= reported.begun_ms


def _with_end(run: RunHistory, reported: Attempt, run_id: str) -> RunHistory:
    """Return a history in which an attempt has the end that its task has reported, unless it has written its
    end itself, and no earlier than the task.
    """

    def ended(attempt: Attempt) -> Attempt:
        own = attempt.how in (How.FAILED, How.STOPPED, How.FINISHED)
        done = attempt.how is How.DONE and attempt.ended_ms > reported.ended_ms
        if own or done or not _made(reported, run_id, attempt, run):
            return attempt
        at_ms = max(reported.ended_ms, attempt.begun_ms)
        return msgspec.structs.replace(attempt, how=reported.how, ended_ms=at_ms, failure=reported.failure)

    return msgspec.structs.replace(run, attempts=tuple(map(ended, run.attempts)))


def short_name(name: str) -> str:
    """Return the name of an owner, or of a DAG, as it is kept."""
    return _cut(name, MOST_NAME)


def _without_tasks(attempt: Attempt) -> Attempt:
    """Return an attempt with the steps of the run and of subtopologies only."""
    steps: Sequence[StepTimes] = [step for step in attempt.steps if not step.task]
    return msgspec.structs.replace(attempt, steps=tuple(steps))


def _cut(text: str, most: int) -> str:
    text = printable(text)
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT
