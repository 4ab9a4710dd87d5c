"""``airflow-kstreams broker``: a broker for trying out, started and stopped from the command line."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from airflow_kstreams.first_steps.broker.local_broker import HOST, BrokerError, LocalBroker
from dev.servers.embedded import kafka_libraries
from tests.support.remedies import walked
from tests.unit.cli.test_app import invoke


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSTREAMS_KAFKA_LIBS", str(kafka_libraries()))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def broker(*arguments: str) -> tuple[int, str]:
    result = invoke("broker", *arguments)
    return result.exit_code, result.output


@pytest.mark.remedy("local_broker.LocalBroker.is_running")
def test_broker_keeps_its_topics_when_it_is_started_and_stopped_twice(tmp_path: Path, free_port: int) -> None:
    folder, address = tmp_path / "airflow-kstreams" / "broker", f"{HOST}:{free_port}"
    try:
        code, said = broker("start", "--port", str(free_port))
        assert (code, said.splitlines()[0]) == (0, f"broker started at {address}, data in {folder}")
        assert "for trying things out only" in said
        admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(10)

        assert f"broker was running already at {address}" in broker("start", "--port", str(free_port))[1]
        code, said = broker("start", "--port", str(free_port + 2))
        assert (code, f"already runs on port {free_port}" in said) == (1, True), said
        assert (
            f"what to do: use it there, or stop it first: airflow-kstreams broker stop --folder {folder}"
            in said
        )

        assert broker("stop", "--folder", str(folder)) == (0, "broker stopped\n")
        assert broker("stop") == (0, f"no broker was running in {folder}\n")

        assert broker("start", "--port", str(free_port + 2))[0] == 0
        moved = AdminClient({"bootstrap.servers": f"{HOST}:{free_port + 2}", "log_level": 2})
        assert "kept" in moved.list_topics(timeout=10).topics
        assert broker("stop", "--delete") == (0, f"broker stopped\ndeleted {folder}\n")
        assert not folder.exists()
        assert broker("stop", "--delete")[1].endswith("there was nothing to delete\n")
    finally:
        broker("stop")


@pytest.mark.error_example("KS-FIRST-002")
@pytest.mark.remedy("local_broker.LocalBroker._refuse_taken_ports")
def test_port_is_named_when_it_is_taken(tmp_path: Path, free_port: int) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, free_port + 1))
        taken.listen()
        code, said = broker("start", "--port", str(free_port))

    assert code == 1
    assert f"cannot use port {free_port + 1} of {HOST}: Address already in use" in said
    assert f"choose another with --port (the broker takes 2 in a row, {free_port} to {free_port + 1})" in said
    assert not (tmp_path / "airflow-kstreams").exists()
    LocalBroker(port=free_port, folder=tmp_path)._refuse_taken_ports()


def test_java_is_asked_for_when_it_is_missing(
    free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    code, said = broker("start", "--port", str(free_port))

    assert code == 1
    assert "Java was not found" in said
    assert "install a Java of 17 or newer" in said


@pytest.mark.parametrize(
    ("place", "cause"),
    [
        walked(
            "local_broker.LocalBroker._make_folder: name a folder of its own",
            "",
            "files that are no broker's",
        ),
        walked(
            "local_broker.LocalBroker._make_folder: name a folder that you", "file", "cannot keep a broker"
        ),
    ],
)
def test_folder_is_refused_when_it_is_no_brokers(
    place: str, cause: str, free_port: int, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    code, said = broker("start", "--port", str(free_port), "--folder", str(tmp_path / place))

    assert (code, cause in said) == (1, True), said
    with pytest.raises(BrokerError, match=cause):
        LocalBroker(port=free_port, folder=tmp_path / place)._make_folder()
    LocalBroker(port=free_port, folder=tmp_path / "own")._make_folder()


@pytest.mark.remedy("local_broker.LocalBroker.wipe")
def test_nothing_is_deleted_when_the_folder_is_no_brokers(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    code, said = broker("stop", "--delete", "--folder", str(tmp_path))

    assert (code, "is no broker's folder" in said) == (1, True), said
    assert (tmp_path / "file").read_text() == "mine"
    broker_file = tmp_path / "own" / "server.properties"
    broker_file.parent.mkdir()
    broker_file.touch()
    assert broker("stop", "--delete", "--folder", str(tmp_path / "own"))[0] == 0
