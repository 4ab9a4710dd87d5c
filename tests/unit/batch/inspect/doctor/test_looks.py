"""Looks that are made side by side: what ends counts, and what does not end is said."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from airflow_kstreams.batch.inspect.doctor.looks import DoctorLook, Finding, Level, in_turn, ok, side_by_side
from airflow_kstreams.streams.errors import KafkaClientError

pytestmark = pytest.mark.promise("doctor-says-what-it-did-not-see")

LONG_SECONDS = 60.0


def found(check: str, text: str = "well") -> DoctorLook:
    return DoctorLook(check=check, findings=lambda: iter([ok(check, text)]))


def test_findings_keep_the_order_of_the_looks_whichever_ends_first() -> None:
    second_ended = threading.Event()

    def first() -> Iterator[Finding | DoctorLook]:
        yield found("of the first")
        second_ended.wait(LONG_SECONDS)
        yield ok("first", "well")

    def second() -> Iterator[Finding | DoctorLook]:
        yield ok("second", "well")
        second_ended.set()

    looks = [DoctorLook(check="first", findings=first), DoctorLook(check="second", findings=second)]
    checks = [each.check for each in side_by_side(looks, seconds=LONG_SECONDS)]
    assert checks == ["of the first", "first", "second"]
    assert [each.check for look in looks for each in in_turn(look)] == checks


@pytest.mark.remedy("looks._Begun.findings")
def test_look_that_does_not_end_is_said_beside_what_was_found_until_it_is_given_time() -> None:
    released = threading.Event()

    def slow() -> Iterator[Finding | DoctorLook]:
        yield ok("slow", "begun")
        released.wait(LONG_SECONDS)
        yield ok("slow", "ended")

    def told(seconds: float) -> list[tuple[Level, str]]:
        looks = [DoctorLook(check="slow", findings=slow), found("quick")]
        return [(each.level, each.text) for each in side_by_side(looks, seconds=seconds)]

    begun, quick = (Level.OK, "begun"), (Level.OK, "well")
    assert told(0.05) == [begun, (Level.UNSEEN, "no end within 0.05 s"), quick]
    released.set()
    assert told(LONG_SECONDS) == [begun, (Level.OK, "ended"), quick]


def failing(error: Exception) -> Callable[[], Iterator[Finding | DoctorLook]]:
    def look() -> Iterator[Finding | DoctorLook]:
        yield ok("before", "well")
        raise error

    return look


def test_what_the_cluster_does_not_answer_was_not_looked_at() -> None:
    silent = KafkaClientError("no answer", fix="start it", kafka_code="_TRANSPORT", retriable_code=True)
    look = DoctorLook(check="topics", findings=failing(silent))
    well, unseen, other = side_by_side([look, found("other")], seconds=LONG_SECONDS)
    assert (well.level, other.level) == (Level.OK, Level.OK)
    assert (unseen.level, unseen.check, unseen.text, unseen.fix) == (
        Level.UNSEEN,
        "topics",
        "no answer",
        "start it",
    )


def test_fault_of_a_look_itself_is_raised() -> None:
    look = DoctorLook(check="broken", findings=failing(KeyError("bug")))
    with pytest.raises(KeyError, match="bug"):
        side_by_side([look], seconds=LONG_SECONDS)
