"""What a task sees of its driver: the last lease, found from the ledger's end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from airflow_kstreams.batch.ledger.facts import Lease
from airflow_kstreams.batch.ledger.fold import LEASE_KEY, WINDOW, LeaseOf, LeaseState, last_lease
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import WriterPort
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka

APP = "app"
LEDGER = ProtocolTopics(APP).ledger
MINE = LeaseOf("run", 2, continuous=False)


def lease(**different: Any) -> Lease:
    held = Lease(owner_run_id="run", order=(0, 1), owner="driver", generation=2, expires_ms=1, lease_ms=1)
    return msgspec.structs.replace(held, **different)


@pytest.fixture
def kafka() -> InMemoryKafka:
    made = InMemoryKafka()
    made.create_topic(LEDGER, cleanup_policy="compact")
    return made


class Fetches:
    """Notes what readers were given to read, and how much came."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.records = 0

    def call(self, name: str, client: object, effect: Any, arguments: tuple[Any, ...]) -> Any:
        result = effect()
        if name == "reader.assign":
            self.starts += arguments[0].values()
        if name == "reader.poll":
            self.records += sum(map(len, result.records.values()))
        return result


def look(kafka: InMemoryKafka, seen: Fetches | None = None) -> Lease | None:
    cluster = FaultyCluster(kafka, seen or Fetches())
    reader = cluster.reader(group_id=APP)
    return last_lease(APP, admin=cluster.admin(), reader=reader, clock=kafka.clock)


def write(kafka: InMemoryKafka, written: Lease | None) -> None:
    kafka.append(LEDGER, None if written is None else msgspec.json.encode(written), LEASE_KEY.encode())


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (lease(), LeaseState.IN_FORCE),
        (lease(expires_ms=0), LeaseState.RELEASED),
        (lease(generation=3), LeaseState.OTHER),
        (lease(generation=3, expires_ms=0), LeaseState.OTHER),
        (lease(owner_run_id="next"), LeaseState.OTHER),
        (lease(owner_run_id="next", slice_run_id="run"), LeaseState.IN_FORCE),
        (lease(slice_run_id="older"), LeaseState.OTHER),
        (lease(continuous=True), LeaseState.OTHER),
        (None, LeaseState.OTHER),
    ],
)
def test_lease_is_judged_by_the_slice_its_owner_works_on(found: Lease | None, state: LeaseState) -> None:
    assert MINE.state_of(found) is state


def test_last_lease_is_found_with_a_few_records_when_the_ledger_is_long(kafka: InMemoryKafka) -> None:
    for number in range(1_000):
        kafka.append(LEDGER, b"{}", f"run-{number}".encode())
        write(kafka, lease(generation=number))
    seen = Fetches()
    assert look(kafka, seen) == lease(generation=999)
    assert seen.records == WINDOW


@pytest.mark.parametrize("behind", [0, 1, WINDOW - 1, WINDOW, 3 * WINDOW, 1_000])
def test_last_lease_is_found_when_other_records_follow_it(kafka: InMemoryKafka, behind: int) -> None:
    write(kafka, lease(generation=1))
    write(kafka, lease())
    for number in range(behind):
        kafka.append(LEDGER, b"{}", f"run-{number}".encode())
    seen = Fetches()
    assert look(kafka, seen) == lease()
    assert seen.records <= behind + 2, "nothing is read twice"


def test_there_is_no_lease_when_it_was_taken_away_or_never_given(kafka: InMemoryKafka) -> None:
    assert look(kafka) is None
    kafka.append(LEDGER, b"{}", b"run-0")
    assert look(kafka) is None
    write(kafka, lease())
    write(kafka, None)
    assert look(kafka) is None
    kafka.admin().delete_topics([LEDGER])
    assert look(kafka) is None


def open_lease(kafka: InMemoryKafka) -> WriterPort:
    """Let a new coordinator write its lease, and not commit yet."""
    writer = kafka.writer(transactional_id=f"{APP}-coordinator", transaction_timeout_ms=600_000)
    writer.init_transactions()
    writer.begin()
    writer.produce(LEDGER, msgspec.json.encode(lease(generation=3)), LEASE_KEY.encode(), 0, None, None)
    writer.flush()
    return writer


class CommitsAfter:
    """Lets a writer commit when a reader has polled so often."""

    def __init__(self, writer: WriterPort, polls: int) -> None:
        self.writer, self.left = writer, polls

    def call(self, name: str, client: object, effect: Any, arguments: tuple[Any, ...]) -> Any:
        if name == "reader.poll":
            self.left -= 1
            if self.left == 0:
                self.writer.commit()
        return effect()


def test_new_lease_is_waited_for_when_its_transaction_is_still_open(kafka: InMemoryKafka) -> None:
    write(kafka, lease())
    cluster = FaultyCluster(kafka, CommitsAfter(open_lease(kafka), 5))
    reader = cluster.reader(group_id=APP)
    assert last_lease(APP, admin=cluster.admin(), reader=reader, clock=kafka.clock) == lease(generation=3)


def test_what_is_stable_counts_when_a_transaction_stays_open(kafka: InMemoryKafka) -> None:
    write(kafka, lease())
    open_lease(kafka)
    before = kafka.clock.monotonic_seconds()
    assert look(kafka) == lease()
    waited = kafka.clock.monotonic_seconds() - before
    assert 20 < waited < 60, "longer than the broker lets a dead coordinator's transaction stay open"
