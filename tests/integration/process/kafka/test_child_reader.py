"""A look reads in a process of its own, whose memory is bounded; its own process stays small and lives.

The client's own broker for tests, which lives in the producer, keeps batches as they were sent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import msgspec
import psutil
import pytest
from confluent_kafka import Producer

from airflow_kstreams.kafka import child_reader
from airflow_kstreams.kafka.child_process import ChildProcess
from airflow_kstreams.kafka.child_reader import MEMORY_VARIABLE
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.kafka.configuration.client_settings import check_client_settings
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings

IN, BESIDE = TopicPartition("in", 0), TopicPartition("in", 1)
LARGE = 100_000_000


@pytest.fixture
def send() -> Iterator[Callable[..., str]]:
    """Sends values to a partition, each in a batch of its own, and returns the bootstrap servers."""
    with ExitStack() as ending:

        def made(codec: str, values: list[bytes]) -> str:
            producer = Producer(
                {
                    "test.mock.num.brokers": 1,
                    "bootstrap.servers": "own",
                    "compression.type": codec,
                    "message.max.bytes": 2 * LARGE,
                    "linger.ms": 1,
                    "log_level": 0,
                }
            )
            ending.callback(producer.flush, 1)
            broker = next(iter(producer.list_topics(timeout=60).brokers.values()))
            for value in values:
                producer.produce(
                    IN.topic, value=value, key=b"k", partition=0, headers=[("h", b"1"), ("n", None)]
                )
                assert producer.flush(60) == 0
            return f"{broker.host}:{broker.port}"

        yield made


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[..., KafkaCluster]:
    """Makes a cluster that is only looked at."""

    def made(bootstrap: str, memory_bytes: int = 64 * 2**20) -> KafkaCluster:
        monkeypatch.setenv(MEMORY_VARIABLE, str(memory_bytes))
        # A text of a class of its own, as each secret is.
        client = {"bootstrap.servers": bootstrap, "log_level": "0", "ssl.key.password": "secret"}
        return KafkaCluster(client, settings=ApplicationSettings.parse("app"), in_child=True)

    return made


def sizes(cluster: KafkaCluster, first: int = 0, stop: int = 3) -> list[int]:
    with closing(cluster.reader(group_id="app")) as reader:
        read = BoundedRead(reader, {IN: (first, stop)})
        return [len(record.value() or b"") for fetched in read for record in fetched.get(IN, ())]


def children() -> set[psutil.Process]:
    """The children of this process; tests before may have left some."""
    return {*psutil.Process().children()}


@pytest.mark.promise("looks-are-bounded")
@pytest.mark.remedy("client_errors.too_much_unpacked")
def test_a_look_names_what_unpacks_to_more_than_it_may_take_and_reads_the_rest(
    send: Callable[..., str], cluster: Callable[..., KafkaCluster]
) -> None:
    bootstrap = send("gzip", [b"a", b"a" * LARGE, b"b"])
    before = psutil.Process().memory_info().rss
    with pytest.raises(KafkaClientError) as refused:
        sizes(cluster(bootstrap))
    error = refused.value
    assert error.cause.startswith(("in-0@0: ", "in-0@1: ")), "the client fetches ahead"
    assert f"the {64 * 2**20:,} bytes that a look may take" in error.cause
    assert "no retry helps" in error.fix
    assert not error.is_retriable
    assert psutil.Process().memory_info().rss - before < LARGE / 2, "unpacked elsewhere"

    assert f"raise {MEMORY_VARIABLE} " in error.fix
    assert "to four times the size" in error.fix
    assert sizes(cluster(bootstrap, 4 * LARGE)) == [1, LARGE, 1]
    assert "--accept in:0 --to-offset" in error.fix
    assert sizes(cluster(bootstrap), first=2) == [1]


@pytest.mark.promise("looks-are-bounded")
@pytest.mark.parametrize("codec", ["snappy", "lz4"])
def test_codecs_that_the_client_does_not_bound_are_bounded_in_a_look(
    codec: str, send: Callable[..., str], cluster: Callable[..., KafkaCluster]
) -> None:
    with pytest.raises(KafkaClientError, match="bytes that a look may take"):
        sizes(cluster(send(codec, [b"a" * LARGE])), stop=1)


@pytest.mark.promise("looks-are-bounded")
def test_a_record_that_fits_once_and_not_twice_is_named_as_well(
    send: Callable[..., str], cluster: Callable[..., KafkaCluster]
) -> None:
    """Where it is Python that gets no memory, the child lives, and its reader is of no more use."""
    with pytest.raises(KafkaClientError, match="bytes that a look may take"):
        sizes(cluster(send("gzip", [b"a" * LARGE]), round(1.5 * LARGE)), stop=1)


def test_a_record_is_the_same_when_a_child_has_fetched_it(
    send: Callable[..., str], cluster: Callable[..., KafkaCluster]
) -> None:
    bootstrap = send("none", [b"a", b"b"])
    plain = KafkaCluster({"bootstrap.servers": bootstrap})
    seen = []
    for each in (plain, cluster(bootstrap)):
        with closing(each.reader(group_id="app")) as reader:
            read = BoundedRead(reader, {IN: (0, 2), BESIDE: (0, 0)})
            records = [record for fetched in read for record in fetched.get(IN, ())]
        methods = ("topic", "partition", "offset", "key", "value", "timestamp", "headers", "leader_epoch")
        seen.append([[getattr(record, name)() for name in methods] for record in records])
    assert seen[0] == seen[1]
    assert len(seen[0]) == 2


def test_children_end_with_their_readers_and_asking_for_offsets_needs_none(
    send: Callable[..., str], cluster: Callable[..., KafkaCluster]
) -> None:
    bootstrap = send("none", [b"a"])
    before = children()
    with closing(cluster(bootstrap).reader(group_id="app")) as reader:
        assert reader.committed([IN]) == {}
        assert children() == before
        reader.assign({IN: 0})
        (child,) = children() - before
    assert not child.is_running()


@pytest.mark.remedy("child_reader.ChildReader._ended")
def test_a_child_that_another_ends_is_told_with_its_signal(
    send: Callable[..., str], cluster: Callable[..., KafkaCluster]
) -> None:
    before = children()
    with closing(cluster(send("none", [b"a"])).reader(group_id="app")) as reader:
        reader.assign({IN: 0})
        (child,) = children() - before
        child.kill()
        with pytest.raises(
            KafkaClientError, match=r"in-0@0: .* ended with code -9 \(by the machine"
        ) as killed:
            reader.poll(max_records=1, timeout_seconds=1)
        assert killed.value.is_retriable
        assert killed.value.fix.startswith("run it again; ")
        reader.assign({IN: 0})
        assert reader.poll(max_records=1, timeout_seconds=10).records


@pytest.mark.remedy("child_reader.look_memory_bytes")
@pytest.mark.parametrize("text", ["512 MB", "-1", "1000"])
def test_memory_that_no_look_can_do_with_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, text)
    look = partial(KafkaCluster, {"bootstrap.servers": "host:9092"}, in_child=True)
    with pytest.raises(ConfigError, match=MEMORY_VARIABLE) as refused:
        look()
    monkeypatch.setenv(MEMORY_VARIABLE, refused.value.fix.split("set it to ")[1].split(",")[0])
    look()
    assert child_reader.look_memory_bytes() == int(os.environ[MEMORY_VARIABLE])


def test_a_secret_reaches_the_child_and_is_one_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asked_child.py").write_text(
        "from airflow_kstreams.kafka.child_process import Parent\n"
        "parent = Parent()\n"
        "for asked in parent.messages():\n"
        "    config = asked['client_config']\n"
        "    parent.answer([repr(config), config['sasl.password'] + '!'])\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    config = check_client_settings({"bootstrap.servers": "host:9092", "sasl.password": "well-hidden"})
    with closing(ChildProcess("asked_child")) as child:
        shown, used = child.ask({"client_config": config}, msgspec.msgpack.decode, seconds=30)
    assert "well-hidden" not in shown
    assert used == "well-hidden!"
