"""``airflow-kstreams publish`` makes the topic, sends what a file or a pipe holds, and says how much."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from airflow_kstreams.cli.app import app
from airflow_kstreams.cli.shared_options import Connection
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.unit.cli.test_app import invoke


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> InMemoryKafka:
    found = InMemoryKafka(clock=ManualClock(now_ms=1_790_000_000_000))
    monkeypatch.setattr(Connection, "cluster", lambda *_, **__: found)
    return found


def test_topic_is_made_and_filled_when_it_is_missing(kafka: InMemoryKafka, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,n\nx,1\ny,2\n")
    result = invoke("publish", "t", str(file), "--key", "id", "--partitions", "2")

    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "made topic t: partitions 2, keeps old records for good",
            f"published 2 records of {file} to t",
        ],
    )
    assert sorted(record.key() or b"" for record in kafka.records("t")) == [b"x", b"y"]


def test_topic_is_only_made_when_the_file_is_empty(kafka: InMemoryKafka) -> None:
    result = invoke("publish", "t", "/dev/null")
    assert result.stdout.splitlines()[1:] == ["published 0 records of /dev/null to t"]
    assert kafka.admin().topic_names() == {"t"}


@pytest.mark.promise("files-are-checked-first")
def test_nothing_is_done_when_a_line_of_a_file_is_bad(kafka: InMemoryKafka, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": 1}\n{"id"\n')
    result = invoke("publish", "t", str(file))

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"nothing was published: {file}:2 is no JSON" in result.stderr
    assert kafka.admin().topic_names() == set()


def test_what_came_before_a_bad_line_is_published_when_it_is_a_pipe(kafka: InMemoryKafka) -> None:
    result = CliRunner().invoke(app, ["publish", "t", "-"], input='{"id": 1}\n{"id"\n')

    assert result.exit_code == 1
    assert "published for certain: 1 record (up to line 1); stdin:2 is no JSON" in result.stderr
    assert len(kafka.records("t")) == 1


@pytest.mark.usefixtures("kafka")
@pytest.mark.parametrize("file", ["nowhere.csv", "."])
def test_exit_code_is_two_when_the_file_cannot_be_read(file: str, tmp_path: Path) -> None:
    result = invoke("publish", "t", str(tmp_path / file))
    assert (result.exit_code, str(tmp_path) in result.stderr) == (2, True)
