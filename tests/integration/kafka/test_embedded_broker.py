"""The embedded broker and the helpers that every other suite stands on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from dev.servers import embedded


def test_records_come_back_in_order_when_produced_to_one_partition(
    create_topic: Callable[..., str],
    topic_name: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., list[Any]],
) -> None:
    topic = create_topic(topic_name(), partitions=2)
    produce(
        topic,
        [
            {"key": f"k{n}", "value": {"n": n}, "partition": 1, "timestamp_ms": 1_357_000_000_000}
            for n in range(5)
        ],
    )

    rows = consume_all(topic)

    assert [(row.partition, row.offset, row.key, row.json()) for row in rows] == [
        (1, n, f"k{n}".encode(), {"n": n}) for n in range(5)
    ]
    assert {row.timestamp_ms for row in rows} == {1_357_000_000_000}


def test_aborted_records_stay_hidden_when_read_committed(
    create_topic: Callable[..., str],
    topic_name: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., list[Any]],
) -> None:
    topic = create_topic(topic_name())
    produce(topic, [("a", "1")], transactional_id=f"{topic}-t")
    produce(topic, [("a", "2")], transactional_id=f"{topic}-t", abort=True)

    assert [row.value for row in consume_all(topic)] == [b"1"]
    assert [row.value for row in consume_all(topic, isolation="read_uncommitted")] == [b"1", b"2"]


def test_login_works_when_the_password_is_right(broker: embedded.Broker) -> None:
    assert AdminClient(broker.sasl_config).list_topics(timeout=10).brokers


def test_login_is_refused_when_the_password_is_wrong(broker: embedded.Broker) -> None:
    config = broker.sasl_config | {"sasl.password": "wrong", "log_level": 0}

    with pytest.raises(KafkaException):
        AdminClient(config).list_topics(timeout=2)


def test_topic_is_not_made_when_nobody_created_it(kafka: str, topic_name: Callable[..., str]) -> None:
    name = topic_name()

    metadata = AdminClient({"bootstrap.servers": kafka}).list_topics(name, timeout=10)

    error = metadata.topics[name].error
    assert error is not None
    assert error.name() == "UNKNOWN_TOPIC_OR_PART"


def test_start_is_refused_in_one_line_when_the_port_is_taken(tmp_path: Path, free_port: int) -> None:
    with socket.socket() as taken:
        taken.bind((embedded.HOST, free_port + 2))
        taken.listen()

        with pytest.raises(embedded.BrokerError, match=f"cannot use port {free_port + 2}") as caught:
            embedded.Broker(port=free_port, folder=tmp_path / "broker").start()

    assert "\n" not in caught.value.cause
    assert not (tmp_path / "broker").exists()


def test_wipe_is_refused_when_the_folder_is_no_brokers(tmp_path: Path, free_port: int) -> None:
    (tmp_path / "letter.txt").write_text("dear")

    with pytest.raises(embedded.BrokerError, match="not deleted"):
        embedded.Broker(port=free_port, folder=tmp_path).wipe()

    assert (tmp_path / "letter.txt").read_text() == "dear"


def test_foreign_process_is_left_alone_when_the_pid_file_names_it(tmp_path: Path, free_port: int) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        (tmp_path / "pid").write_text(str(stranger.pid))

        stopped = embedded.Broker(port=free_port, folder=tmp_path).stop()

        assert not stopped
        assert stranger.poll() is None
        stranger.communicate(b"\n")


@pytest.mark.prove  # every session of dev/test starts a broker by the same code
def test_command_starts_keeps_and_resets_topics_when_used_as_a_user_would(
    tmp_path: Path, free_port: int
) -> None:
    place = ["--port", str(free_port), "--dir", str(tmp_path / "broker")]

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dev.commands.kafka_command", arguments[0], *place, *arguments[1:]],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    assert command("status").returncode == 3
    try:
        assert command("start").returncode == 0
        assert "was running already" in command("start").stdout
        assert command("tool", "kafka-topics", "--create", "--topic", "kept").returncode == 0
        assert command("stop").returncode == 0
        assert command("start").returncode == 0
        listed = command("tool", "kafka-topics", "--list")
        assert (listed.stdout, listed.stderr) == ("kept\n", "")
        assert command("status").returncode == 0
        assert command("reset").returncode == 0
        assert command("tool", "kafka-topics", "--list").stdout.strip() == ""
    finally:
        assert command("stop").returncode == 0
    assert command("status").returncode == 3


def test_broker_ends_when_its_session_is_killed(
    tmp_path: Path, free_port: int, wait_until: Callable[..., Any]
) -> None:
    folder = tmp_path / "broker"
    script = (
        "import sys; from pathlib import Path; from dev.servers.embedded import Broker\n"
        f"with Broker(port={free_port}, folder=Path({str(folder)!r})):\n"
        "    print('up', flush=True); input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == b"up\n"
        broker_pid = embedded.Broker(port=free_port, folder=folder).pid
        assert broker_pid is not None

        os.kill(session.pid, signal.SIGKILL)

        session.wait()
    wait_until(lambda: not psutil.pid_exists(broker_pid), "the end of the orphaned broker")
