"""Where a session's executors are, and what they are shipped."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_kstreams.spark.driver import spark_session
from airflow_kstreams.spark.driver.spark_session import open_session, shipped_settings
from airflow_kstreams.streams.errors import ConfigError


class NotOpenedError(Exception):
    """Nothing is started here."""


class Builder:
    """Takes note of what Spark would be told."""

    def __init__(self) -> None:
        self.masters: list[str] = []
        self.settings: dict[str, Any] = {}

    def master(self, master: str) -> Builder:
        self.masters.append(master)
        return self

    def config(self, *_: Any, **given: Any) -> Builder:
        self.settings |= given.get("map", {})
        return self

    appName = config

    def getOrCreate(self) -> None:
        raise NotOpenedError


def told(monkeypatch: pytest.MonkeyPatch, given: str | None, of_environment: str | None) -> Builder:
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "MASTER"):
        monkeypatch.delenv(name, raising=False)
    if of_environment is not None:
        monkeypatch.setenv("MASTER", of_environment)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    builder = Builder()
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", builder)
    with pytest.raises(NotOpenedError):
        open_session("name", given)
    return builder


def test_a_master_that_is_given_is_taken_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert told(monkeypatch, "spark://host:7077", None).masters == ["spark://host:7077"]
    assert told(monkeypatch, "spark://host:7077", "local[1]").masters == ["spark://host:7077"]


def test_the_environment_says_where_executors_are_when_no_master_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert told(monkeypatch, None, "local[1]").masters == []
    assert told(monkeypatch, None, None).masters == ["local[3,4]"]


class Session:
    """Takes what is shipped on its executors' machines, by itself or, before Spark 4, by its context."""

    def __init__(self, master: str) -> None:
        self.conf = {"spark.master": master}
        self.shipped: dict[Path, str] = {}
        self.sparkContext = SimpleNamespace(addFile=self.addFile)

    def addArtifacts(self, path: str, *, file: bool) -> None:
        assert file
        self.addFile(path)

    def addFile(self, path: str) -> None:
        self.shipped[Path(path)] = Path(path).read_text(encoding="utf-8")


@pytest.mark.promise("no-secret-is-seen")
def test_cluster_is_shipped_a_file_of_no_use_that_is_gone_after_the_session(tmp_path: Path) -> None:
    own = tmp_path / "client.json"
    own.write_text(json.dumps({"bootstrap.servers": "b:1", "sasl.password": "canary"}))
    session: Any = Session("spark://host:7077")
    with shipped_settings(session, str(own)) as client:
        ((path, text),) = session.shipped.items()
        assert path.exists(), "an executor that starts later reads it, too"
        assert client.path == str(path)
    assert "canary" not in text
    assert not path.exists()


@pytest.fixture
def spark_3_5(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "version_of", lambda name: "3.5.9" if name == "pyspark" else None)


@pytest.mark.usefixtures("spark_3_5")
def test_cluster_is_shipped_and_cancelled_by_its_context_when_only_that_can(tmp_path: Path) -> None:
    own = tmp_path / "client.json"
    own.write_text(json.dumps({"bootstrap.servers": "b:1"}))
    done: list[str] = []
    context = SimpleNamespace(addFile=done.append, cancelAllJobs=lambda: done.append("cancelled"))
    session: Any = SimpleNamespace(conf={"spark.master": "spark://host:7077"}, sparkContext=context)
    with shipped_settings(session, str(own)) as client:
        assert done == [client.path]
    spark_session.cancel_jobs(session)
    assert done[1:] == ["cancelled"]


@pytest.mark.usefixtures("spark_3_5")
@pytest.mark.remedy("spark_session.open_session")
def test_spark_connect_is_refused_when_it_is_of_spark_3_5(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    with pytest.raises(ConfigError, match=r"needs pyspark 4 here, and Spark 3\.5") as raised:
        open_session("name")
    assert "leave SPARK_REMOTE out" in raised.value.fix
    assert told(monkeypatch, "spark://host:7077", None).masters == ["spark://host:7077"]


def test_nothing_is_shipped_when_executors_are_on_this_machine(tmp_path: Path) -> None:
    session: Any = Session("local[2]")
    with shipped_settings(session, str(tmp_path / "client.json")) as client:
        assert (client.path, client.mask) == (str(tmp_path / "client.json"), "")
    assert session.shipped == {}


@pytest.mark.promise("no-secret-is-seen")
def test_no_function_goes_through_a_file_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = told(monkeypatch, None, None).settings
    assert settings["spark.broadcast.UDFCompressionThreshold"] == "1g"
