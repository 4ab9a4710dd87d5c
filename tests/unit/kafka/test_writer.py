"""When a transactional writer says that it must never be used again: whenever a request that
ends a transaction, or adds offsets to it, may have been sent twice.

The client library is played here, because no real broker loses an answer on demand.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_kstreams.kafka import writer as module
from airflow_kstreams.kafka.writer import TransactionalWriter
from airflow_kstreams.streams.errors import (
    KafkaClientError,
    KStreamsError,
    TaskFencedError,
    TransactionAbortedError,
)
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from tests.support.remedies import walked

pytestmark = pytest.mark.promise("late-answers-end-nothing")

OFFSETS = {TopicPartition("in", 0): CommittedOffset(5)}
#: What must not be repeated: port method -> method of the client.
CALLS = {
    "commit": "commit_transaction",
    "abort": "abort_transaction",
    "send_offsets": "send_offsets_to_transaction",
}
each_call = pytest.mark.parametrize("call", CALLS)


class FakeProducer:
    """The client library's producer, as far as the writer uses it.

    Whoever waits in ``poll`` gets statistics, the same as last time unless others are due.

    :ivar during: client method -> what happens while it runs.
    :ivar silent: whether no statistics come any more.
    """

    made: FakeProducer
    clock: FakeTime

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.during: dict[str, Callable[[], None]] = {}
        self.pending: list[Callable[[], None]] = []
        self.undelivered = 0
        self.silent = False
        self.last = self._text("one")
        FakeProducer.made = self

    def __getattr__(self, name: str) -> Callable[..., None]:
        def run(*_: Any, **__: Any) -> None:
            self.during.get(name, lambda: None)()

        return run

    def poll(self, timeout: float = 0) -> int:
        self.during.get("poll", lambda: None)()
        pending, self.pending = self.pending, []
        for callback in pending:
            callback()
        if timeout:
            self.clock.now += timeout
            if not self.silent:
                self.config["stats_cb"](self.last)
        return 0

    def flush(self, timeout: float = 0) -> int:
        self.during.get("flush", lambda: None)()
        return self.undelivered

    def statistics(self, name: str = "one", /, **broker: int) -> None:
        """Have the statistics tell something of a connection when they are served next, and from then on."""
        self.last = self._text(name, **broker)
        self.pending.append(lambda: self.config["stats_cb"](self.last))

    @staticmethod
    def _text(name: str, **broker: int) -> str:
        return msgspec.json.encode({"brokers": {name: {"nodeid": -1, **broker}}}).decode()

    def connection_error(self, code: int) -> None:
        """Have the error callback told when it is served next."""
        self.pending.append(lambda: self.config["error_cb"](KafkaError(code, "lost")))


class FakeReader:
    group_id = "app"

    def group_metadata(self) -> object:
        return "app"


class FakeTime:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    clock = FakeTime()
    FakeProducer.clock = clock
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch, clock: FakeTime) -> TransactionalWriter:
    monkeypatch.setattr(module, "Producer", FakeProducer)
    made = make_another()
    made.begin()
    return made


def make_another(*, bulk: bool = False) -> TransactionalWriter:
    made = TransactionalWriter(
        {"bootstrap.servers": "nowhere:1"},
        transactional_id="app-0_0",
        transaction_timeout_ms=60_000,
        timeout_ms=30_000,
        bulk=bulk,
    )
    made.init_transactions()
    return made


def use(writer: TransactionalWriter, call: str) -> None:
    if call == "send_offsets":
        writer.send_offsets(OFFSETS, FakeReader())  # type: ignore[arg-type]
    else:
        getattr(writer, call)()


def refuses_another_transaction(writer: TransactionalWriter) -> bool:
    assert writer.suspect
    with pytest.raises(KafkaClientError, match="may have repeated a request") as caught:
        writer.begin()
    return caught.value.is_retriable


def failing(code: int, **flags: bool) -> Callable[[], None]:
    def fail() -> None:
        raise KafkaException(KafkaError(code, "failed", **flags))

    return fail


@pytest.mark.remedy("errors.SuspectWriterError.__init__")
def test_new_writer_goes_on_when_another_may_have_repeated_a_request(writer: TransactionalWriter) -> None:
    FakeProducer.made.during["commit_transaction"] = failing(KafkaError._TIMED_OUT)
    with pytest.raises(KafkaClientError):
        writer.commit()
    assert refuses_another_transaction(writer)

    newer = make_another()
    newer.begin()
    newer.commit()
    assert not newer.suspect


@pytest.mark.remedy("writer.IdempotentWriter._refuse_closed")
def test_new_writer_goes_on_when_one_is_closed(writer: TransactionalWriter) -> None:
    writer.close()
    with pytest.raises(KafkaClientError, match="this writer is closed"):
        writer.commit()

    newer = make_another()
    newer.begin()
    newer.commit()


@pytest.mark.parametrize(
    ("told", "error"),
    [
        walked(
            "delivery.of_transaction: nothing if a newer attempt runs",
            TaskFencedError,
            failing(KafkaError._FENCED, fatal=True),
        ),
        walked(
            "delivery.of_transaction: nothing: the task aborts",
            TransactionAbortedError,
            failing(KafkaError.INVALID_TXN_STATE, txn_requires_abort=True),
        ),
    ],
)
def test_task_goes_on_with_another_writer_when_its_transaction_failed_and_nothing_is_done(
    writer: TransactionalWriter, told: type[KStreamsError], error: Callable[[], None]
) -> None:
    FakeProducer.made.during["send_offsets_to_transaction"] = error
    with pytest.raises(told):
        use(writer, "send_offsets")

    newer = make_another()
    newer.begin()
    use(newer, "send_offsets")
    newer.commit()
    assert not newer.suspect


@each_call
def test_writer_stays_sound_when_nothing_happened(writer: TransactionalWriter, call: str) -> None:
    FakeProducer.made.statistics(disconnects=0, req_timeouts=0)
    use(writer, call)
    assert not writer.suspect
    if call != "send_offsets":
        writer.begin()


@each_call
@pytest.mark.parametrize(
    "error",
    [
        failing(KafkaError._TIMED_OUT),
        failing(KafkaError._TIMED_OUT, retriable=True),
        failing(KafkaError._TRANSPORT),
        failing(KafkaError.REQUEST_TIMED_OUT),
        failing(KafkaError.COORDINATOR_NOT_AVAILABLE, retriable=True),
        failing(KafkaError.INVALID_TXN_STATE, txn_requires_abort=True),
        failing(KafkaError._FENCED, fatal=True),
    ],
    ids=["timed out", "timed out, retriable", "transport", "request", "coordinator", "abortable", "fenced"],
)
def test_writer_is_suspect_when_the_call_fails_in_any_way(
    writer: TransactionalWriter, call: str, error: Callable[[], None]
) -> None:
    FakeProducer.made.during[CALLS[call]] = error
    with pytest.raises(KStreamsError):
        use(writer, call)
    assert refuses_another_transaction(writer)


@each_call
def test_writer_is_suspect_when_the_call_is_interrupted(writer: TransactionalWriter, call: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    FakeProducer.made.during[CALLS[call]] = interrupt
    with pytest.raises(KeyboardInterrupt):
        use(writer, call)
    assert refuses_another_transaction(writer)


@each_call
@pytest.mark.parametrize(("seconds", "suspect"), [(9.9, False), (10.0, True), (60.0, True)])
def test_writer_is_suspect_when_the_call_was_slow(
    writer: TransactionalWriter, clock: FakeTime, call: str, seconds: float, suspect: bool
) -> None:
    def wait() -> None:
        clock.now += seconds

    FakeProducer.made.during[CALLS[call]] = wait
    use(writer, call)
    assert writer.suspect is suspect


@each_call
@pytest.mark.parametrize("told", [{"disconnects": 1}, {"req_timeouts": 1}], ids=["disconnect", "timeout"])
@pytest.mark.parametrize("when", ["during the call", "earlier in the transaction"])
def test_writer_is_suspect_when_the_statistics_tell_what_makes_the_client_repeat_requests(
    writer: TransactionalWriter, call: str, told: dict[str, int], when: str
) -> None:
    fake = FakeProducer.made
    if when == "during the call":
        fake.during[CALLS[call]] = lambda: fake.statistics(**told)
    else:
        fake.statistics(**told)
    use(writer, call)
    assert refuses_another_transaction(writer), "the call itself returned well: its first copy was answered"


@each_call
def test_writer_is_suspect_when_the_connection_to_the_coordinator_was_lost(
    writer: TransactionalWriter, call: str
) -> None:
    fake = FakeProducer.made
    fake.during[CALLS[call]] = lambda: fake.statistics("TxnCoordinator", disconnects=1)
    use(writer, call)
    assert refuses_another_transaction(writer), "the statistics give this connection no node id"


@each_call
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("seconds", [0.05, 0.08])
def test_writer_waits_for_fresh_statistics_when_a_call_was_long_enough_for_a_repetition(
    writer: TransactionalWriter, clock: FakeTime, call: str, lost: bool, seconds: float
) -> None:
    fake = FakeProducer.made

    def repeat() -> None:
        clock.now += seconds
        if lost:
            fake.last = fake._text("TxnCoordinator", disconnects=1)  # nothing of it has been served yet

    fake.during[CALLS[call]] = repeat
    use(writer, call)
    waited = clock.now - 100.0 - seconds
    assert (waited > 0) is (seconds >= 0.08)
    assert writer.suspect is (lost and waited > 0)


@each_call
def test_writer_is_suspect_when_fresh_statistics_do_not_come(
    writer: TransactionalWriter, clock: FakeTime, call: str
) -> None:
    def wait() -> None:
        clock.now += 0.2

    FakeProducer.made.during[CALLS[call]] = wait
    FakeProducer.made.silent = True
    use(writer, call)
    assert refuses_another_transaction(writer)


@each_call
@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN])
def test_writer_is_suspect_when_the_error_callback_tells_of_a_lost_connection(
    writer: TransactionalWriter, call: str, code: int
) -> None:
    fake = FakeProducer.made
    fake.during[CALLS[call]] = lambda: fake.connection_error(code)
    use(writer, call)
    assert refuses_another_transaction(writer)


@each_call
def test_writer_is_suspect_when_serving_callbacks_after_the_call_fails(
    writer: TransactionalWriter, call: str
) -> None:
    FakeProducer.made.during["poll"] = failing(KafkaError._FENCED, fatal=True)
    with pytest.raises(KStreamsError):
        use(writer, call)
    assert refuses_another_transaction(writer)


@pytest.mark.parametrize("call", ["commit", "send_offsets"])
def test_writer_is_suspect_when_records_are_not_delivered_before_the_call(
    writer: TransactionalWriter, call: str
) -> None:
    FakeProducer.made.undelivered = 3
    with pytest.raises(KafkaClientError, match="3 records undelivered"):
        use(writer, call)
    assert refuses_another_transaction(writer)


def test_connection_that_was_lost_before_the_transaction_is_not_held_against_it(
    writer: TransactionalWriter,
) -> None:
    fake = FakeProducer.made
    fake.statistics(disconnects=4)
    fresh = TransactionalWriter(
        {"bootstrap.servers": "nowhere:1"},
        transactional_id="app-0_0",
        transaction_timeout_ms=60_000,
        timeout_ms=30_000,
    )
    fake = FakeProducer.made
    fake.statistics(disconnects=4)
    fake.poll()
    fresh.init_transactions()
    fresh.begin()
    fake.statistics(disconnects=4)
    fresh.commit()
    assert not fresh.suspect


@pytest.mark.error_example("KS-KAFKA-002")
def test_disconnect_between_two_transactions_keeps_the_next_from_beginning(
    writer: TransactionalWriter,
) -> None:
    writer.commit()
    FakeProducer.made.statistics(disconnects=1)
    FakeProducer.made.poll()
    assert refuses_another_transaction(writer), "it may be the last commit that is still being repeated"


def test_statistics_come_several_times_before_any_request_is_repeated(writer: TransactionalWriter) -> None:
    config = FakeProducer.made.config
    assert int(config["statistics.interval.ms"]) * 3 <= int(config["retry.backoff.ms"]) * 0.8


def test_claim_that_fails_names_why_it_was_repeated(monkeypatch: pytest.MonkeyPatch, clock: FakeTime) -> None:
    monkeypatch.setattr(module, "Producer", FakeProducer)
    writer = TransactionalWriter(
        {"bootstrap.servers": "nowhere:1"},
        transactional_id="app-0_0",
        transaction_timeout_ms=60_000,
        timeout_ms=30_000,
    )

    def fail() -> None:
        logger = FakeProducer.made.config["logger"]
        logger.log(30, "%s [%s] %s", "GETPID", "rdkafka#1", "Coordinator load in progress: retrying")
        clock.now += 60
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "timed out", retriable=True))

    FakeProducer.made.during["init_transactions"] = fail
    with pytest.raises(KafkaClientError, match="Coordinator load in progress: retrying"):
        writer.init_transactions()


class FakeSender:
    """What sends records without delivery reports, as far as the writer uses it."""

    def __init__(self) -> None:
        self.sent = 0
        self.released = False

    def produce(self, *_: object) -> None:
        self.sent += 1

    def release(self) -> None:
        self.released = True


@pytest.fixture
def bulk(monkeypatch: pytest.MonkeyPatch, clock: FakeTime) -> Callable[[], TransactionalWriter]:
    """Makes bulk writers, each with a transaction begun."""
    monkeypatch.setattr(module, "Producer", FakeProducer)
    monkeypatch.setattr(module, "sender_of", lambda *_, **__: FakeSender())
    monkeypatch.setattr(module, "_ONE_BY_ONE", set())

    def make() -> TransactionalWriter:
        made = make_another(bulk=True)
        made.begin()
        return made

    return make


def sends_without_reports(writer: TransactionalWriter) -> bool:
    return isinstance(getattr(writer.produce, "__self__", None), FakeSender)


@pytest.mark.remedy("writer.TransactionalWriter._explain")
@pytest.mark.parametrize("call", ["flush", "send_offsets", "commit"])
def test_next_writer_sends_with_reports_when_a_record_without_one_was_refused(
    bulk: Callable[[], TransactionalWriter], call: str
) -> None:
    writer = bulk()
    writer.produce("out", b"large", b"k")
    # What the client says of a transaction in which a record was refused.
    refused = failing(KafkaError.MSG_SIZE_TOO_LARGE, txn_requires_abort=True)
    FakeProducer.made.during["begin_transaction"] = refused
    FakeProducer.made.undelivered = 1
    with pytest.raises(TransactionAbortedError):
        use(writer, call)
    assert writer.suspect

    newer = bulk()
    assert not sends_without_reports(newer)
    newer.commit()
    assert sends_without_reports(bulk())


def test_error_is_as_ever_when_every_record_has_a_report(bulk: Callable[[], TransactionalWriter]) -> None:
    writer = bulk()
    FakeProducer.made.during["commit_transaction"] = failing(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaClientError):
        writer.commit()
    assert sends_without_reports(bulk())


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (failing(KafkaError._FENCED, fatal=True), TaskFencedError),
        (failing(KafkaError._TIMED_OUT), KafkaClientError),
    ],
    ids=["fenced", "no answer"],
)
def test_records_are_sent_without_reports_again_when_none_was_refused(
    bulk: Callable[[], TransactionalWriter], error: Callable[[], None], raised: type[KStreamsError]
) -> None:
    writer = bulk()
    writer.produce("out", b"v", b"k")
    FakeProducer.made.during["commit_transaction"] = error
    FakeProducer.made.during["begin_transaction"] = failing(KafkaError._STATE)
    with pytest.raises(raised):
        writer.commit()
    assert sends_without_reports(bulk())


def test_sender_gives_the_producer_back_when_the_writer_is_closed(
    bulk: Callable[[], TransactionalWriter],
) -> None:
    writer = bulk()
    sender = writer.produce.__self__  # type: ignore[attr-defined]
    writer.close()
    assert sender.released
