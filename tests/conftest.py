"""What every suite shares: one real broker per lane, and helpers on a plain client (no engine code)."""

from __future__ import annotations

import gc
import itertools
import json
import os
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from dev.servers import embedded
from dev.servers.quick_java import start_spark_quickly
from dev.servers.secured import SecuredBroker
from tests.support.examples import draw

TESTS = Path(__file__).parent
#: Folders that must hold tests; a suite that silently vanished is a failure.
EXPECTED_FOLDERS = (
    "unit",
    "property",
    "typing",
    "contract",
    "simulation",
    "integration/process",
    "integration/recipes",
    "integration/kafka",
    "integration/schema_registry",
    "integration/security",
    "integration/spark",
    "integration/airflow",
    "integration/java",
    "faults",
)
_CLIENT_SECONDS = 30.0
_LONGEST_PAUSE_SECONDS = 0.5
#: What brokers before Kafka 3.6 do by default, and have no such names for.
_ANY_TIME = {
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
_TOPIC_CONFIG = {"retention.ms": "-1", "retention.bytes": "-1"}


# == the session as a whole

pytest_plugins = [
    "tests.support.times",
    "tests.support.lanes",
    "tests.support.rewritten",
    "tests.support.error_examples",
    "tests.support.remedies",
    "tests.support.docs.snippets",
]


def pytest_configure(config: pytest.Config) -> None:
    start_spark_quickly()
    # Lanes have it from xdist; tests mean a pipe, which has no width.
    os.environ.pop("COLUMNS", None)
    quick, proof = config.getoption("--quick"), config.getoption("--prove")
    shrinking = not config.getoption("--no-shrinking")
    draw("whole" if proof else "tenth" if quick else "quarter", shrinking=shrinking)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-suites",
        action="store_true",
        help="fail when an expected suite folder collected no test (dev/test gives this on a whole run)",
    )
    parser.addoption(
        "--quick",
        action="store_true",
        help="draw a tenth of the examples (dev/test --quick gives this)",
    )
    parser.addoption(
        "--no-shrinking",
        action="store_true",
        help="take the first example that fails, however large (dev/promises gives this)",
    )
    parser.addoption(
        "--prove",
        action="store_true",
        help="run the long proof: tests marked prove, and with all examples those that draw some "
        "(dev/prove gives this)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    proof = config.getoption("--prove")
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        runs = _is_long(item) or _draws(item) if proof else not _is_long(item)
        (kept if runs else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def _is_long(item: pytest.Item) -> bool:
    # Not `in item.keywords`: these hold the names of folders too, and a checkout may be called "prove".
    return item.get_closest_marker("prove") is not None


def _draws(item: pytest.Item) -> bool:
    return hypothesis.is_hypothesis_test(getattr(item, "obj", None))


def pytest_collection_finish(session: pytest.Session) -> None:
    # Thousands of collected tests stay to the end: each full garbage collection would look at them again.
    gc.collect()
    gc.freeze()
    # A lane's complaint would be lost: the process that hands tests out hears what the lanes collected.
    if session.config.getoption("--all-suites") and not hasattr(session.config, "workerinput"):
        refuse_missing(item.nodeid for item in session.items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: Sequence[str]) -> None:
    if node.config.getoption("--all-suites"):
        refuse_missing(ids)


def refuse_missing(nodeids: Iterable[str]) -> None:
    """Fail unless every expected folder holds a test: a suite that silently vanished is a failure.

    :raises pytest.UsageError: one of :data:`EXPECTED_FOLDERS` holds none.
    """
    collected = tuple(nodeids)
    expected = [f"tests/{folder}/" for folder in EXPECTED_FOLDERS]
    missing = [folder for folder in expected if not any(node.startswith(folder) for node in collected)]
    if missing:
        raise pytest.UsageError(f"no test was collected in {', '.join(missing)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # A skipped test proves nothing; what cannot run here must fail here.
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped: {report.longrepr}; tests must not skip"
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped as a whole: {report.longrepr}; tests must not skip"


# == the broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Broker]:
    """A real broker of this session's own; the kernel ends it too when the session is killed."""
    port = embedded.free_port(6)
    folder = tmp_path_factory.mktemp("broker")
    with embedded.Broker(port=port, folder=folder, proxy_port=port + 3, astray_port=port + 5) as running:
        yield running


@pytest.fixture(scope="session")
def kafka(broker: embedded.Broker) -> str:
    """``bootstrap.servers`` of the session's broker."""
    return broker.bootstrap


@pytest.fixture(scope="session")
def sasl_bootstrap(broker: embedded.Broker) -> str:
    """``bootstrap.servers`` of its SASL/PLAIN listener (user alice, password alice-secret)."""
    return broker.sasl_bootstrap


@pytest.fixture(scope="session")
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A real broker with users, TLS and access control; started by the first test that asks for it."""
    users = {"carol": f"canary-{uuid.uuid4().hex}"}
    port = embedded.free_port(SecuredBroker.PORTS)
    folder = tmp_path_factory.mktemp("secured-broker")
    # All work without each of its permissions leaves some thousand topics.
    with SecuredBroker(port=port, folder=folder, heap="1g", users=users) as running:
        yield running


@pytest.fixture
def free_port() -> int:
    """A port nobody listens on."""
    return embedded.free_port()


_numbers = itertools.count(1)


@pytest.fixture
def topic_name() -> Callable[..., str]:
    """Make topic names that no other test uses: ``topic_name("flights")`` -> ``flights-3-5f0c``."""

    def make(prefix: str = "topic") -> str:
        return f"{prefix}-{next(_numbers)}-{uuid.uuid4().hex[:4]}"

    return make


@pytest.fixture
def application_id(topic_name: Callable[..., str]) -> str:
    """An application id that no other test uses."""
    return topic_name("app")


@pytest.fixture(scope="session")
def kafka_admin(kafka: str) -> AdminClient:
    """Plain admin client of the session's broker."""
    # It cannot be closed, and outlives the broker: its complaints would stand after pytest's summary.
    return AdminClient({"bootstrap.servers": kafka, "log_level": 2})


@pytest.fixture
def create_topic(kafka_admin: AdminClient, kafka: str) -> Callable[..., str]:
    """``create_topic(name, partitions=1, **configs)``: unlimited retention; dots in configs as ``_``."""

    def create(name: str, partitions: int = 1, **configs: str) -> str:
        any_time = {} if embedded.knows_one_time_limit() else _ANY_TIME
        config = (
            _TOPIC_CONFIG | any_time | {key.replace("_", "."): str(value) for key, value in configs.items()}
        )
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        kafka_admin.create_topics([topic])[name].result(_CLIENT_SECONDS)
        deadline = time.monotonic() + _CLIENT_SECONDS
        while not _every_partition_leads(kafka_admin, name, partitions):
            if time.monotonic() > deadline:
                pytest.fail(f"topic {name} did not become usable within {_CLIENT_SECONDS:.0f} s")
        return name

    return create


def _every_partition_leads(admin: AdminClient, name: str, partitions: int) -> bool:
    metadata = admin.list_topics(name, timeout=_CLIENT_SECONDS).topics[name]
    return metadata.error is None and sum(p.leader >= 0 for p in metadata.partitions.values()) == partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One record as a test writes or reads it; text and JSON-able values are encoded for you when written.

    Read back, ``key`` and ``value`` are bytes (or None).
    """

    key: Any = None
    value: Any = None
    partition: int = -1
    timestamp_ms: int = 0
    headers: Sequence[Any] = ()
    topic: str = ""
    offset: int = -1

    def json(self) -> Any:
        """The value decoded as JSON."""
        return None if self.value is None else json.loads(self.value)


def _encoded(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


@pytest.fixture
def produce(kafka: str) -> Callable[..., None]:
    """``produce(topic, rows, transactional_id=None, abort=False)``.

    Rows are Row, (key, value) pairs or dicts of Row's fields. With a transactional id all rows go into one
    transaction, which is committed or, on request, aborted.
    """

    def send(topic: str, rows: Any, *, transactional_id: str | None = None, abort: bool = False) -> None:
        config: dict[str, Any] = {"bootstrap.servers": kafka, "partitioner": "murmur2_random", "linger.ms": 5}
        if transactional_id is not None:
            config["transactional.id"] = transactional_id
        producer = Producer(config)
        failures: list[str] = []
        try:
            if transactional_id is not None:
                producer.init_transactions(_CLIENT_SECONDS)
                producer.begin_transaction()
            for row in map(_row, rows):
                producer.produce(
                    topic,
                    value=_encoded(row.value),
                    key=_encoded(row.key),
                    partition=row.partition,
                    timestamp=row.timestamp_ms,
                    headers=list(row.headers),
                    on_delivery=lambda error, _message: failures.append(str(error)) if error else None,
                )
                producer.poll(0)
            assert producer.flush(_CLIENT_SECONDS) == 0, "records were not delivered in time"
            assert not failures, failures[:3]
            if transactional_id is not None:
                (producer.abort_transaction if abort else producer.commit_transaction)(_CLIENT_SECONDS)
        finally:
            # An open producer complains on stderr when the broker goes, after pytest's summary.
            producer.close()

    return send


def _row(item: Any) -> Row:
    if isinstance(item, Row):
        return item
    return Row(**item) if isinstance(item, Mapping) else Row(key=item[0], value=item[1])


@pytest.fixture
def consume_all(kafka: str) -> Callable[..., list[Row]]:
    """``consume_all(topic, isolation="read_committed")``: all there is now, by partition, offset."""

    def read(topic: str, *, isolation: str = "read_committed") -> list[Row]:
        return sorted(
            read_rows(kafka, topic, isolation=isolation), key=lambda row: (row.partition, row.offset)
        )

    return read


def read_rows(bootstrap: str, topic: str, *, isolation: str = "read_committed") -> list[Row]:
    """Read a topic from its start to its present end with a plain client."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid.uuid4().hex}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            # A broker tells the end of a partition only after this time, 0.5 s by default.
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_CLIENT_SECONDS).topics[topic].partitions
        if not partitions:
            pytest.fail(f"topic {topic} does not exist")
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        rows: list[Row] = []
        open_partitions = set(partitions)
        deadline = time.monotonic() + _CLIENT_SECONDS
        while open_partitions:
            if time.monotonic() > deadline:
                pytest.fail(f"did not reach the end of {topic}, partitions {sorted(open_partitions)}")
            for message in _arrived(consumer):
                error = message.error()
                if error is None:
                    rows.append(_read(message))
                elif error.name() == "_PARTITION_EOF":
                    open_partitions.discard(message.partition())
                else:
                    raise KafkaException(error)
        return rows
    finally:
        consumer.close()


def _arrived(consumer: Consumer) -> list[Message]:
    """Wait for the first record alone: ``consume`` waits until it has as many as it may take."""
    first = consumer.consume(1, timeout=0.2)
    return [*first, *consumer.consume(10_000, timeout=0)] if first else first


def _read(message: Message) -> Row:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    return Row(
        key=message.key(),
        value=message.value(),
        partition=partition,
        timestamp_ms=message.timestamp()[1],
        headers=tuple(message.headers() or ()),
        topic=topic,
        offset=offset,
    )


@dataclass(slots=True, kw_only=True)
class Deadline:
    """Waits for a condition instead of a time."""

    seconds: float = 60.0
    _started: float = field(default_factory=time.monotonic)

    def until(self, condition: Callable[[], Any], what: str, *, pause_seconds: float = 0.05) -> Any:
        """Return the condition's first true value.

        :param condition: asked again and again, less often if asking takes long: what is waited for needs
            the machine, too.
        :param what: named when it never comes true.
        """
        while True:
            asked = time.monotonic()
            value = condition()
            if value:
                return value
            now = time.monotonic()
            if now - self._started > self.seconds:
                pytest.fail(f"waited {self.seconds:.0f} s in vain for: {what}")
            time.sleep(min(max(pause_seconds, 3 * (now - asked)), _LONGEST_PAUSE_SECONDS))


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    """``wait_until(condition, what, seconds=60)``."""

    def wait(condition: Callable[[], Any], what: str, *, seconds: float = 60.0) -> Any:
        return Deadline(seconds=seconds).until(condition, what)

    return wait


@pytest.fixture
def grow(kafka_admin: AdminClient, wait_until: Callable[..., Any]) -> Callable[[str, int], None]:
    """``grow(topic, partitions)``: returns once a client sees that the topic has so many partitions."""

    def more(topic: str, partitions: int) -> None:
        kafka_admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(_CLIENT_SECONDS)
        wait_until(
            lambda: (
                len(kafka_admin.list_topics(topic, timeout=_CLIENT_SECONDS).topics[topic].partitions)
                == partitions
            ),
            f"{partitions} partitions of {topic}",
        )

    return more
