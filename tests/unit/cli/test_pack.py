"""The archive for executors: complete by itself, equal for equal content."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kstreams.spark.driver.package_archive import build_archive
from airflow_kstreams.streams.errors import ConfigError
from tests.unit.cli.test_app import invoke


@pytest.mark.parametrize("extra", ["airflow", "rocks"])
def test_extra_is_refused_with_those_there_are_when_it_is_of_no_use(extra: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"no use for extra '{extra}'") as raised:
        build_archive(tmp_path / "a.tar.gz", extras=[extra])
    assert raised.value.fix == "use one of otel, rocksdb, schema-registry, or none"


def test_file_is_named_when_it_cannot_be_written(tmp_path: Path) -> None:
    result = invoke("pack", "--output", str(tmp_path / "no-such" / "a.tar.gz"))

    assert result.exit_code == 1
    assert "no-such/a.tar.gz' cannot be written" in result.stderr
