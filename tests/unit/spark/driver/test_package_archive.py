"""What Spark ships to executors, unpickled by other Pythons, as an executor's worker does it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_kstreams.spark.executor.task_host import TaskHost
from tests.support.spark.shipped_hosts import a_continuous_host, a_host, written_config


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_config(tmp_path_factory.mktemp("config"))


@pytest.mark.parametrize("make", [a_host, a_continuous_host])
def test_host_is_the_same_when_it_has_travelled(make: Callable[[Path], TaskHost], config: Path) -> None:
    import msgspec

    host = make(config)

    assert msgspec.json.decode(msgspec.json.encode(host), type=type(host)) == host
