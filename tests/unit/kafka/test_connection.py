from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_kstreams.kafka import admin as admin_module
from airflow_kstreams.kafka import admin_requests, connection, reader, writer
from airflow_kstreams.kafka import reader as reader_module
from airflow_kstreams.kafka.admin import ClusterAdmin
from airflow_kstreams.kafka.client_errors import CallOverdueError
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.kafka.connection import BoundedCaller, FirstContact, RequestTime, await_connection
from airflow_kstreams.kafka.events import ClientEvents
from airflow_kstreams.kafka.reader import BoundedReader
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import ManualClock

#: Between its first connections librdkafka pauses for half of the setting, and for no less than 11 ms.
SHORTEST_PAUSE_MS = 11
PAUSE = "reconnect.backoff.ms"


class Client:
    """Stands in for any client of the library; knows no broker and answers everything at once."""

    made: list[dict[str, Any]]

    def __init__(self, config: Mapping[str, Any], **_: object) -> None:
        self.made.append({**config})

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


@pytest.fixture(autouse=True)
def without_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in for a client has no handle: records cross one by one."""
    monkeypatch.setattr(reader, "columns_of", lambda *_: None)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Settings of the clients that were made."""
    monkeypatch.setattr(Client, "made", [], raising=False)
    for module, name in ((admin_requests, "AdminClient"), (reader, "Consumer"), (writer, "Producer")):
        monkeypatch.setattr(module, name, Client)
    return Client.made


def make_all(cluster: KafkaCluster) -> None:
    cluster.reader(group_id="app")
    cluster.writer(transactional_id=None)
    cluster.writer(transactional_id="app-0_0")
    with pytest.raises(AttributeError):  # the answer of nobody
        cluster.admin().topic_names()


def test_first_connections_are_made_without_delay_by_every_client(made: list[dict[str, Any]]) -> None:
    make_all(KafkaCluster({"bootstrap.servers": "nowhere:9092"}))

    assert len(made) == 4
    assert all(int(config[PAUSE]) // 2 <= SHORTEST_PAUSE_MS for config in made)


def test_users_own_pause_is_kept_by_every_client(made: list[dict[str, Any]]) -> None:
    make_all(KafkaCluster({"bootstrap.servers": "nowhere:9092", PAUSE: "100"}))

    assert [config[PAUSE] for config in made] == ["100"] * 4


NAME = "bounded-calls-under-test"


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def make(timeout_seconds: float = 10) -> BoundedCaller:
    return BoundedCaller(NAME, timeout_seconds=timeout_seconds)


def raising(error: Any) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_calls_are_made_in_order_on_one_thread() -> None:
    caller, made = make(), list[tuple[int, threading.Thread]]()
    assert not threads(), "no thread before the first call"
    for number in range(3):
        assert caller.attempt(lambda n: made.append((n, threading.current_thread())), number) is None
    assert made == [(number, *threads()) for number in range(3)]
    caller.close()
    caller.close()
    made[0][1].join(10)
    assert not threads()


def test_error_of_a_call_is_returned() -> None:
    caller, error = make(), ValueError("v")
    assert caller.attempt(raising(error)) is error
    assert isinstance(caller.attempt(raising(KafkaError(KafkaError._STATE))), TypeError | KafkaError)
    assert caller.attempt(lambda: None) is None, "the next call is made as well"
    caller.close()


def test_call_is_refused_at_once_when_the_caller_is_closed() -> None:
    caller, made = make(), list[int]()
    caller.close()
    assert "closed" in str(caller.attempt(lambda: made.append(1)))
    assert not made


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_is_raised(interrupt: type[BaseException]) -> None:
    caller = make()
    with pytest.raises(interrupt):
        caller.attempt(raising(interrupt()))
    caller.close()


def test_every_call_is_refused_when_one_did_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_OVERDUE_SECONDS", 0.01)
    caller, release, made = make(0.01), threading.Event(), list[int]()
    assert isinstance(caller.attempt(release.wait), CallOverdueError)
    (left,) = threads()
    assert str(caller.attempt(lambda: made.append(1))) == "no answer within 0.01 s"
    assert caller.stuck
    caller.close()
    release.set()
    left.join(10)
    assert not threads()
    assert not made


def test_thread_ends_when_nobody_holds_the_caller(wait_until: Callable[..., Any]) -> None:
    caller = make()
    assert caller.attempt(lambda: None) is None
    del caller
    gc.collect()
    wait_until(lambda: not threads(), "the thread's end")


CONFIG = {"bootstrap.servers": "broker:9092"}
AT = TopicPartition("in", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def look(clock: ManualClock) -> RequestTime:
    return RequestTime("broker:9092", request_ms=4_000, look_ms=8_000, monotonic=clock.monotonic_seconds)


class SilentClient:
    """Answers the first contact; every wait for anything else lasts as long as it is allowed to."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.asked: list[float] = []

    def made(self, *_: object, **__: object) -> SilentClient:
        return self

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> object:
        return SimpleNamespace(topics={}, brokers={})

    def poll(self, timeout: float = -1) -> None:
        return None

    def assign(self, partitions: object) -> None:
        return None

    def consume(self, count: int, timeout: float) -> list[Any]:
        if timeout:
            self._wait(timeout)
        return []

    def committed(self, partitions: object, timeout: float) -> list[Any]:
        return self._times_out(timeout)

    def describe_topics(self, names: object, request_timeout: float) -> dict[str, Any]:
        return {"in": SimpleNamespace(result=lambda _: self._times_out(request_timeout))}

    def list_offsets(self, specs: object, request_timeout: float, isolation_level: object) -> dict[Any, Any]:
        return {AT: SimpleNamespace(result=lambda _: self._times_out(request_timeout))}

    def _times_out(self, seconds: float) -> NoReturn:
        self._wait(seconds)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _wait(self, seconds: float) -> None:
        assert seconds > 0, "the client takes it for no limit"
        self.asked.append(seconds)
        self.clock.sleep(seconds)


@pytest.fixture
def client(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> SilentClient:
    client = SilentClient(clock)
    monkeypatch.setattr(admin_requests, "AdminClient", client.made)
    monkeypatch.setattr(reader_module, "Consumer", client.made)
    for module in (admin_module, admin_requests, reader_module):
        monkeypatch.setattr(
            module, "time", SimpleNamespace(monotonic=clock.monotonic_seconds, sleep=clock.sleep)
        )
    return client


@pytest.mark.error_example("KS-KAFKA-001")
@pytest.mark.promise("status-ends")
@pytest.mark.remedy("connection.RequestTime._over")
def test_wait_gets_what_is_left_when_it_is_less_than_a_request_may_take(
    look: RequestTime, clock: ManualClock
) -> None:
    assert (look.left(), look.left(0.2)) == (4, 0.2)
    clock.sleep(5)
    assert (look.left(), look.left(0.2)) == (3, 0.2)
    clock.sleep(3)
    with pytest.raises(KafkaClientError) as caught:
        look.left(0.2)
    error = caught.value
    assert error.cause == "broker unreachable at broker:9092: it did not give all answers within 8 s"
    assert "check bootstrap.servers" in error.fix and "--timeout" in error.fix
    assert error.is_retriable
    longer = RequestTime("broker:9092", request_ms=4_000, look_ms=60_000, monotonic=clock.monotonic_seconds)
    clock.sleep(8)
    assert longer.left(0.2) == 0.2


@pytest.mark.promise("status-ends")
def test_requests_are_not_bounded_together_when_nobody_asked_for_it(clock: ManualClock) -> None:
    alone = RequestTime("broker:9092", request_ms=4_000, monotonic=clock.monotonic_seconds)
    clock.sleep(3_600)
    assert (alone.left(), alone.left(0)) == (4, 0)


@pytest.mark.promise("status-ends")
def test_cluster_can_still_be_shipped_when_it_has_a_bound() -> None:
    shipped = pickle.loads(pickle.dumps(KafkaCluster(CONFIG, look_ms=8_000)))
    assert shipped.bootstrap == "broker:9092"


ADMIN_CALLS: dict[str, Callable[[ClusterAdmin], object]] = {
    "topics": lambda admin: admin.describe_topics(["in"]),
    "ends": lambda admin: admin.end_offsets([AT], isolation="read_committed"),
    "starts": lambda admin: admin.start_offsets([AT]),
}


@pytest.mark.promise("status-ends")
@pytest.mark.parametrize("call", ADMIN_CALLS.values(), ids=ADMIN_CALLS.keys())
def test_admin_requests_share_the_bound_when_none_is_answered(
    look: RequestTime, client: SilentClient, clock: ManualClock, call: Callable[[ClusterAdmin], object]
) -> None:
    admin = ClusterAdmin(CONFIG, request_time=look)
    clock.sleep(3)  # of other clients
    for _ in range(3):
        with pytest.raises(KafkaClientError, match="broker unreachable at broker:9092"):
            call(admin)
    assert client.asked == [4, 1]


@pytest.mark.promise("status-ends")
def test_read_ends_when_nothing_comes_any_more(
    look: RequestTime, client: SilentClient, clock: ManualClock
) -> None:
    clock.sleep(5)
    reader = BoundedReader(CONFIG, group_id="app", isolation="read_committed", request_time=look)
    read = BoundedRead(reader, {AT: (0, 10)}, clock=clock)
    with pytest.raises(KafkaClientError, match="did not give all answers within 8 s"):
        list(read)
    assert sum(client.asked) == pytest.approx(3)


@pytest.mark.promise("status-ends")
def test_committed_offsets_are_asked_for_no_longer_than_is_left(
    look: RequestTime, client: SilentClient, clock: ManualClock
) -> None:
    clock.sleep(5)
    reader = BoundedReader(CONFIG, group_id="app", isolation="read_committed", request_time=look)
    with pytest.raises(KafkaClientError, match="broker unreachable at broker:9092"):
        reader.committed([AT])
    assert client.asked == pytest.approx([1, 1.9])


@pytest.mark.promise("no-broker-is-said")
def test_first_contact_has_a_bound_of_its_own() -> None:
    clock = ManualClock()
    time = RequestTime(
        "broker:9092",
        request_ms=30_000,
        look_ms=40_000,
        connect_ms=8_000,
        monotonic=clock.monotonic_seconds,
    )
    assert (time.to_connect(), time.left()) == (8, 30)
    assert RequestTime.from_list("broker:9092", time.to_list())._connect_ms == 8_000
    clock.sleep(35)
    assert time.to_connect() == 5, "no more than what is left of the look"
    assert RequestTime("broker:9092", request_ms=4_000, connect_ms=8_000).to_connect() == 4
    assert RequestTime("broker:9092", request_ms=30_000).to_connect() == 30


def test_only_a_reader_that_follows_a_log_lets_the_broker_wait(made: list[dict[str, Any]]) -> None:
    cluster = KafkaCluster({"bootstrap.servers": "nowhere:9092"})
    for follows in (False, True):
        cluster.reader(group_id="app", follows=follows)
    KafkaCluster({"bootstrap.servers": "nowhere:9092", "fetch.wait.max.ms": "70"}).reader(
        group_id="app", follows=True
    )

    assert [config["fetch.wait.max.ms"] for config in made] == ["1", "10", "70"]


def test_client_has_connected_when_it_has_answered_twice() -> None:
    asked: list[str | None] = []

    class Answering:
        def list_topics(self, topic: str | None = None, timeout: float = -1) -> None:
            asked.append(topic)

        def poll(self, timeout: float = -1) -> None:
            return None

    config = {"bootstrap.servers": "broker:9092"}
    await_connection(Answering(), ClientEvents(config), config=config, timeout_seconds=1)

    assert len(asked) == 2, "the first answer may come over a connection that the client gives up then"


class Answering:
    """A client that answers, and counts what it is asked.

    :param together: clients whose answers wait for each other.
    :param failures: number of questions that it cannot answer first.
    """

    def __init__(self, together: threading.Barrier | None = None, failures: int = 0) -> None:
        self._together = together
        self._failures = failures
        self.asked = self.polled = 0

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> None:
        self.asked += 1
        if self._together is not None:
            self._together.wait()
        if self.asked <= self._failures:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def poll(self, timeout: float = -1) -> None:
        self.polled += 1


CONFIG = {"bootstrap.servers": "broker:9092"}


def test_clients_connect_side_by_side_when_they_are_made_one_after_another() -> None:
    together = threading.Barrier(2, timeout=60)
    clients = [Answering(together), Answering(together)]
    contacts = [FirstContact(client, CONFIG) for client in clients]
    assert all(contact.made() for contact in contacts)


def test_client_is_asked_no_more_when_its_first_contact_was_made() -> None:
    client = Answering()
    contact = FirstContact(client, CONFIG)
    await_connection(client, ClientEvents(CONFIG), config=CONFIG, timeout_seconds=1, contact=contact)
    assert client.asked == 2
    assert client.polled == 1, "what the first contact has reported belongs to no later transaction"


@pytest.mark.parametrize("failures", [1, 2])
def test_client_is_asked_again_when_its_first_contact_failed(failures: int) -> None:
    client = Answering(failures=failures)
    contact = FirstContact(client, CONFIG)
    assert not contact.made()
    assert client.asked == 1
    await_connection(client, ClientEvents(CONFIG), config=CONFIG, timeout_seconds=60, contact=contact)
    assert client.asked == failures + 2


def test_no_contact_is_tried_when_the_client_needs_a_token_that_only_polls_fetch() -> None:
    client = Answering()
    assert not FirstContact(client, {**CONFIG, "sasl.mechanism": "OAUTHBEARER"}).made()
    assert not client.asked


def test_admin_client_is_made_once_and_connects_before_its_first_request(
    made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    contacts: list[object] = []
    monkeypatch.setattr(admin_requests, "FirstContact", lambda client, _: contacts.append(client))
    admin = KafkaCluster(CONFIG).admin()
    assert len(made) == len(contacts) == 1
    with pytest.raises(AttributeError):  # the answer of nobody
        admin.topic_names()
    assert len(made) == 1
