"""Two distributions of Spark's Python files in one environment."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError

import pytest

from airflow_kstreams.spark.driver import spark_session
from airflow_kstreams.streams.errors import ConfigError


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(name: str) -> str:
        try:
            return versions[name.replace("-", "_")]
        except KeyError:
            raise PackageNotFoundError(name) from None

    monkeypatch.setattr(spark_session, "version", version)


@pytest.mark.remedy("spark_session.refuse_mixed_pyspark")
def test_session_is_refused_when_pyspark_and_its_client_are_of_two_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed(monkeypatch, pyspark="4.2.1", pyspark_client="4.2.0")
    with pytest.raises(
        ConfigError, match=r"pyspark 4\.2\.1 and pyspark-client 4\.2\.0 are installed"
    ) as raised:
        spark_session.open_session("any")
    told = dict(re.findall(r"(pyspark(?:-client)?)==(\S+)", raised.value.fix))
    installed(monkeypatch, pyspark=told["pyspark"], pyspark_client=told["pyspark-client"])
    spark_session.refuse_mixed_pyspark()


@pytest.mark.parametrize(
    "versions",
    [{"pyspark": "4.2.1"}, {"pyspark": "4.2.0", "pyspark_client": "4.2.0"}, {"pyspark_client": "4.2.0"}],
)
def test_one_version_is_taken_whoever_brought_it(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]
) -> None:
    installed(monkeypatch, **versions)
    spark_session.refuse_mixed_pyspark()
