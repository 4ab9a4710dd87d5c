from __future__ import annotations

import threading

import pytest

from airflow_kstreams.batch.run.lease.lease_renewal import LeaseRenewal
from airflow_kstreams.streams.errors import KafkaClientError, RunSupersededError

SUPERSEDED = RunSupersededError("claimed", run_id="run-1")
BUSY_BROKER = KafkaClientError("no answer", kafka_code="_TIMED_OUT", retriable_code=True)


class Renewals:
    """Plays back what the renewals do, then succeeds for ever."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self._outcomes = list(outcomes)
        self.count = 0
        self.enough = threading.Event()
        self.released = 0

    def renew(self) -> None:
        self.count += 1
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if not self._outcomes:
            self.enough.set()
        if outcome is not None:
            raise outcome

    def release(self) -> None:
        self.released += 1


def keeper(renewals: Renewals, **extra: object) -> LeaseRenewal:
    return LeaseRenewal(
        renew=renewals.renew,
        release=renewals.release,
        interval_seconds=0.001,
        **extra,  # type: ignore[arg-type]
    )


def test_lease_is_renewed_again_and_again_when_a_renewal_fails_in_between() -> None:
    renewals = Renewals(None, BUSY_BROKER, None, None)
    with keeper(renewals) as lease:
        assert renewals.enough.wait(10)
        assert not lease.superseded
    assert renewals.released == 1


def test_owner_is_told_once_when_it_was_superseded() -> None:
    told = threading.Semaphore(0)
    renewals = Renewals(None, SUPERSEDED)
    with keeper(renewals, on_superseded=told.release) as lease:
        assert told.acquire(timeout=10)
        with pytest.raises(RunSupersededError):
            lease.check()
    assert lease.superseded
    assert renewals.count == 2
    assert renewals.released == 0
    assert not told.acquire(blocking=False)


def test_check_proves_ownership_by_a_renewal_when_called() -> None:
    renewals = Renewals(SUPERSEDED)
    lease = keeper(renewals)
    with pytest.raises(RunSupersededError, match="claimed"):
        lease.check()
    assert renewals.count == 1


@pytest.mark.parametrize(("proved", "count"), [(True, 0), (False, 1)])
def test_lease_is_renewed_before_a_launch_when_no_write_has_just_proved_it(proved: bool, count: int) -> None:
    renewals = Renewals()
    keeper(renewals, proved=lambda: proved).check_before_launch()
    assert renewals.count == count


def test_nothing_is_launched_when_the_driver_is_known_to_be_superseded() -> None:
    renewals = Renewals(SUPERSEDED)
    lease = keeper(renewals, proved=lambda: True)
    for check in (lease.check, lease.check_before_launch):
        with pytest.raises(RunSupersededError, match="claimed"):
            check()


def test_lease_is_released_when_the_jobs_failed() -> None:
    renewals = Renewals()
    with pytest.raises(ValueError, match="job"), keeper(renewals):
        raise ValueError("job")
    assert renewals.released == 1


def test_no_thread_is_started_when_a_keeper_is_only_made() -> None:
    before = threading.active_count()
    keeper(Renewals())
    assert threading.active_count() == before
