"""Who may take an application over: judged by renewals that are seen, whatever the machines' clocks say."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.reset.scenario import TO_EARLIEST, shift_by
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.streams import KStreamBuilder, Topology
from airflow_kstreams.streams.errors import ConfigError, RunBusyError, RunSupersededError
from airflow_kstreams.streams.ports import Clock
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import InMemoryKafka
from tests.support.crash import Crash
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import CrashingAt, Once
from tests.support.kafka.printed_commands import accept_in_memory
from tests.support.kafka.reset_scene import ResetScene
from tests.support.kafka.waiting import WaitingClock

pytestmark = pytest.mark.promise("leases-are-judged-by-renewals")

APP = "app"
LEASE_SECONDS = 30.0
HALF_A_DAY_MS = 12 * 3_600_000
CLOCKS = pytest.mark.parametrize(
    "ahead_ms", [HALF_A_DAY_MS, 0, -HALF_A_DAY_MS], ids=["fast", "equal", "slow"]
)


@pytest.fixture
def topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").send_to("out")
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    kafka.create_topic("out")
    kafka.append("in", b"v", b"k")
    return kafka


def coordinator(kafka: InMemoryKafka, clock: Clock | None = None, **settings: Any) -> Coordinator:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    checked = ApplicationSettings.parse(APP, {"settle.ms": 0, **named})
    return Coordinator(kafka, checked, clock=clock or kafka.clock)


def dead_owner(kafka: InMemoryKafka, topology: Topology, *, ahead_ms: int = 0, **settings: Any) -> None:
    """Begin a run whose driver is never heard of again."""
    clock = WaitingClock(kafka.clock, ahead_ms=ahead_ms)
    begun = coordinator(kafka, clock, **settings).begin(
        "first", topology.plan(APP), order=(0, 1), owner="a dead driver", hold_lease=True
    )
    assert begun.created


@CLOCKS
def test_run_waits_one_lease_and_goes_on_when_the_owner_is_dead_whatever_its_clock_says(
    kafka: InMemoryKafka, topology: Topology, caplog: pytest.LogCaptureFixture, ahead_ms: int
) -> None:
    dead_owner(kafka, topology, ahead_ms=ahead_ms)
    clock = WaitingClock(kafka.clock)

    with caplog.at_level(logging.WARNING):
        begun = coordinator(kafka, clock).begin("second", topology.plan(APP), hold_lease=True)

    assert begun.slice is not None
    assert (begun.slice.run_id, begun.slice.generation) == ("first", 2)
    assert clock.waited_seconds == LEASE_SECONDS
    waits, goes_on = [record.getMessage() for record in caplog.records if "lease" in record.getMessage()]
    assert "run second waits up to 30 s: a dead driver has not released its lease for run first" in waits
    assert "run second goes on: the lease of a dead driver for run first was not renewed for 30 s" in goes_on


@CLOCKS
@pytest.mark.parametrize("hold_lease", [True, False], ids=["driver", "capture"])
def test_run_is_refused_when_the_owner_renews_its_lease_whatever_its_clock_says(
    kafka: InMemoryKafka, topology: Topology, ahead_ms: int, hold_lease: bool
) -> None:
    owner = coordinator(kafka, WaitingClock(kafka.clock, ahead_ms=ahead_ms))
    owner.begin("first", topology.plan(APP), owner="a driver", hold_lease=True)
    kafka.clock.sleep(LEASE_SECONDS - 1)
    clock = WaitingClock(kafka.clock, owner.lease.renew)

    with pytest.raises(RunBusyError, match="a driver works on run 'first' and has just renewed its lease"):
        coordinator(kafka, clock).begin("second", topology.plan(APP), hold_lease=hold_lease)

    assert clock.waited_seconds <= LEASE_SECONDS / 3
    owner.lease.renew()


def test_run_waits_for_a_lease_again_when_it_was_renewed_between_the_wait_and_the_claim(
    kafka: InMemoryKafka, topology: Topology
) -> None:
    owner = coordinator(kafka)
    owner.begin("first", topology.plan(APP), hold_lease=True)
    late = coordinator(kafka)
    ensure: Callable[..., Any] = late.session.claim

    def claim() -> None:
        owner.lease.renew()
        ensure()

    late.session.claim = claim  # type: ignore[method-assign]
    with pytest.raises(RunBusyError):
        late.begin("second", topology.plan(APP), hold_lease=True)
    owner.lease.renew()


def test_nothing_is_waited_for_when_the_lease_was_released(kafka: InMemoryKafka, topology: Topology) -> None:
    owner = coordinator(kafka, WaitingClock(kafka.clock, ahead_ms=HALF_A_DAY_MS))
    owner.begin("first", topology.plan(APP), hold_lease=True)
    owner.lease.release()
    clock = WaitingClock(kafka.clock)
    assert coordinator(kafka, clock).begin("second", topology.plan(APP), hold_lease=True).slice is not None
    assert not clock.waited_seconds


def test_nothing_is_waited_for_when_a_higher_try_of_the_same_run_takes_over(
    kafka: InMemoryKafka, topology: Topology
) -> None:
    dead_owner(kafka, topology, ahead_ms=HALF_A_DAY_MS)
    clock = WaitingClock(kafka.clock)
    begun = coordinator(kafka, clock).begin("first", topology.plan(APP), order=(0, 2), hold_lease=True)
    assert begun.slice is not None
    assert not clock.waited_seconds


@pytest.mark.parametrize(("owners_ms", "own_ms"), [(120_000, 3_000), (3_000, 120_000)])
def test_wait_lasts_as_long_as_the_owners_lease_when_the_settings_differ(
    kafka: InMemoryKafka, topology: Topology, owners_ms: int, own_ms: int
) -> None:
    dead_owner(kafka, topology, lease_ms=owners_ms)
    clock = WaitingClock(kafka.clock)
    coordinator(kafka, clock, lease_ms=own_ms).begin("second", topology.plan(APP), hold_lease=True)
    assert clock.waited_seconds == owners_ms / 1000


@CLOCKS
def test_finish_waits_for_the_lease_of_another_run_likewise(
    kafka: InMemoryKafka, topology: Topology, ahead_ms: int
) -> None:
    owner = coordinator(kafka, WaitingClock(kafka.clock, ahead_ms=ahead_ms))
    owner.begin("first", topology.plan(APP), owner="a driver", hold_lease=True)
    with pytest.raises(RunBusyError, match="a driver works on run 'first'"):
        coordinator(kafka, WaitingClock(kafka.clock, owner.lease.renew)).finish("second")
    clock = WaitingClock(kafka.clock)
    with pytest.raises(Exception, match="'second' of application 'app' cannot be finished: it has no slice"):
        coordinator(kafka, clock).finish("second")
    assert clock.waited_seconds == LEASE_SECONDS


@CLOCKS
def test_last_renewal_is_shown_and_nothing_decided_when_the_owner_is_dead(
    kafka: InMemoryKafka, topology: Topology, ahead_ms: int
) -> None:
    dead_owner(kafka, topology, ahead_ms=ahead_ms)
    begun_ms = kafka.clock.now_ms()
    kafka.clock.sleep(86_400.0)
    status = read_status(kafka, APP, clock=kafka.clock)
    assert status.lease is not None
    assert status.lease.owner == "a dead driver"
    assert abs(status.lease_renewed_ms - begun_ms) <= 1_000


def test_run_ends_when_its_drivers_clock_is_further_ahead_than_brokers_take_by_default(
    kafka: InMemoryKafka, topology: Topology
) -> None:
    ahead = WaitingClock(kafka.clock, ahead_ms=2 * 3_600_000)
    Application(application_id=APP, topology=topology, on=kafka, clock=ahead).run("run")
    assert read_status(kafka, APP, clock=kafka.clock).runs


@pytest.mark.promise("orphans-write-nothing")
def test_driver_writes_nothing_under_a_lease_that_a_new_start_has_released(
    kafka: InMemoryKafka, topology: Topology
) -> None:
    """A retry ends the lease of the driver before it, and dies before it has written its own."""
    former = coordinator(kafka)
    former.begin("run", topology.plan(APP), order=(0, 1), hold_lease=True)
    retry = coordinator(kafka)
    with retry.session.claiming():
        retry.lease.end_former(retry.session.read_ledger())
    written = len(kafka.records(f"{APP}-runs"))

    with pytest.raises(RunSupersededError):
        former.lease.renew()

    assert len(kafka.records(f"{APP}-runs")) == written
    assert read_status(kafka, APP, clock=kafka.clock).lease is None


# == threads of one driver


@pytest.mark.error_example("KS-RUN-004")
def test_no_thread_writes_under_a_claim_while_another_looks_up_what_it_means(
    scene: ResetScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, owner = scene.coordinator(), scene.coordinator()
    scene.begin("r2", coordinator=former, order=1)
    scene.begin("r2", coordinator=owner, order=2)
    read_ledger, refused = former.session.read_ledger, list[RunSupersededError]()

    def renew() -> None:
        try:
            former.lease.renew()
        except RunSupersededError as error:
            refused.append(error)

    renewal = threading.Thread(target=renew)

    def read_while_another_renews(**options: Any) -> Any:
        if threading.current_thread() is threading.main_thread() and renewal.ident is None:
            renewal.start()
            renewal.join(0.2)
        return read_ledger(**options)

    monkeypatch.setattr(former.session, "read_ledger", read_while_another_renews)
    with pytest.raises(RunSupersededError):
        former.lease.reclaim()
    renewal.join(30)

    assert len(refused) == 1
    lease = scene.ledger.lease
    assert lease is not None and lease.order == (0, 2)
    owner.lease.renew()


# == resets


@pytest.fixture
def scene() -> ResetScene:
    scene = ResetScene()
    scene.send("a")
    scene.run("r1")
    scene.send("b")
    return scene


def owned(scene: ResetScene, *, ahead_ms: int) -> Coordinator:
    """Begin a run under a driver on a machine of another time."""
    owner = Coordinator(scene.kafka, scene.checked, clock=WaitingClock(scene.clock, ahead_ms=ahead_ms))
    scene.begin("r2", coordinator=owner)
    return owner


@CLOCKS
def test_reset_waits_one_lease_and_goes_on_when_the_driver_is_dead(scene: ResetScene, ahead_ms: int) -> None:
    owned(scene, ahead_ms=ahead_ms)
    began = scene.clock.monotonic_seconds()
    done = scene.reset(inputs="in", delete_stop_offsets=True)
    assert done.dropped_run == "r2"
    assert LEASE_SECONDS <= scene.clock.monotonic_seconds() - began < LEASE_SECONDS + 5
    assert scene.ledger.lease is None


@CLOCKS
def test_reset_is_refused_when_the_driver_renews_its_lease(scene: ResetScene, ahead_ms: int) -> None:
    owner = owned(scene, ahead_ms=ahead_ms)
    scene.clock = WaitingClock(scene.clock, owner.lease.renew)  # type: ignore[assignment]
    with pytest.raises(RunBusyError, match="driver of r2 works on run 'r2' and has just renewed its lease"):
        scene.reset(inputs="in", delete_stop_offsets=True)
    owner.lease.renew()
    scene.reset(inputs="in", delete_stop_offsets=True, force=True)


# == what a caller that is refused does


def results(scene: ResetScene) -> dict[str, int]:
    return dict(scene.counts())


@pytest.mark.remedy("lease.busy: {_WAIT}")
def test_run_counts_all_when_it_retries_after_the_run_that_was_in_its_way(scene: ResetScene) -> None:
    owner = scene.coordinator()
    slice_ = scene.begin("r2", coordinator=owner)
    late = Application(
        application_id="app",
        topology=scene.topology,
        on=scene.kafka,
        clock=WaitingClock(scene.clock, owner.lease.renew),
    )
    with pytest.raises(RunBusyError, match="works on run 'r2'") as refused:
        late.begin("r3", (0, 3))
    assert refused.value.fix.startswith("retry later")
    scene.tasks(slice_)
    owner.finish("r2")
    owner.close()
    scene.send("a")
    scene.run("r3")
    assert results(scene) == {"a": 2, "b": 1}


@pytest.mark.remedy("lease.lost_race")
def test_run_counts_all_when_it_retries_after_it_lost_a_race(scene: ResetScene) -> None:
    owner, begun = scene.coordinator(), list[Any]()
    race = Once("writer.begin", 1, lambda: begun.append(scene.begin("r2", coordinator=owner)))
    late = Application(
        application_id="app", topology=scene.topology, on=scene.kafka, clock=scene.clock, interceptor=race
    )
    with pytest.raises(RunBusyError, match="began at the same moment as run 'r3'"):
        late.begin("r3", (0, 3))
    scene.tasks(begun[0])
    owner.finish("r2")
    owner.close()
    scene.send("a")
    scene.run("r3")
    assert results(scene) == {"a": 2, "b": 1}


@pytest.mark.remedy("lease.resetting")
@pytest.mark.parametrize("moved", ["--to-earliest", "--shift-by -1", "--delete-stopoffsets"])
@pytest.mark.parametrize("stage", ["stopping", "deleting"])
def test_run_counts_as_the_reset_asked_when_the_interrupted_one_ran_again(
    scene: ResetScene, moved: str, stage: str
) -> None:
    scene.run("r2")
    scene.counts()
    asked = {
        "--to-earliest": {"inputs": "in", "intermediates": "mid", "scenario": TO_EARLIEST},
        "--shift-by -1": {"inputs": "in", "intermediates": "mid", "scenario": shift_by(-1)},
        "--delete-stopoffsets": {"inputs": "in", "intermediates": "mid", "delete_stop_offsets": True},
    }[moved]
    call = {"stopping": "writer.send_offsets", "deleting": "admin.delete_topics"}[stage]
    with pytest.raises(Crash):
        scene.reset(CrashingAt(0, name=call).cluster(scene.kafka), **asked)
    with pytest.raises(RunBusyError, match="its reset was interrupted") as refused:
        scene.run("r3")
    assert moved in refused.value.fix
    accept_in_memory(refused.value, scene.kafka)
    scene.run("r3")
    assert results(scene) == {"a": 1, "b": 1}


@pytest.mark.remedy("lease._none_held")
def test_lease_is_kept_when_begin_was_called_as_the_error_says(scene: ResetScene) -> None:
    driver = scene.coordinator()
    with pytest.raises(ConfigError, match="no lease is held"):
        driver.lease.keep()
    slice_ = scene.begin("r2", coordinator=driver)
    with driver.lease.keep():
        scene.tasks(slice_)
    scene.finish("r2")
    driver.close()
    assert results(scene) == {"a": 1, "b": 1}
