"""Where a session's executors are."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.spark.driver.spark_session import open_session


class NotOpenedError(Exception):
    """Nothing is started here."""


class Builder:
    """Takes note of what Spark would be told."""

    def __init__(self) -> None:
        self.masters: list[str] = []

    def master(self, master: str) -> Builder:
        self.masters.append(master)
        return self

    def config(self, *_: Any, **__: Any) -> Builder:
        return self

    appName = config

    def getOrCreate(self) -> None:
        raise NotOpenedError


def masters(monkeypatch: pytest.MonkeyPatch, given: str | None, of_environment: str | None) -> list[str]:
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "MASTER"):
        monkeypatch.delenv(name, raising=False)
    if of_environment is not None:
        monkeypatch.setenv("MASTER", of_environment)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    builder = Builder()
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", builder)
    with pytest.raises(NotOpenedError):
        open_session("name", given)
    return builder.masters


def test_a_master_that_is_given_is_taken_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert masters(monkeypatch, "spark://host:7077", None) == ["spark://host:7077"]
    assert masters(monkeypatch, "spark://host:7077", "local[1]") == ["spark://host:7077"]


def test_the_environment_says_where_executors_are_when_no_master_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert masters(monkeypatch, None, "local[1]") == []
    assert masters(monkeypatch, None, None) == ["local[3,4]"]
