"""Where a local broker listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kstreams.first_steps.broker.local_broker import LocalBroker


@pytest.mark.promise("local-brokers-stay-local")
def test_every_listener_of_a_local_broker_is_on_this_machine_only(tmp_path: Path) -> None:
    lines = LocalBroker(port=9092, folder=tmp_path)._properties().splitlines()
    given = [line.partition("=")[2].split(",") for line in lines if "listeners=" in line]
    addresses = {listener.partition("://")[2].rpartition(":")[0] for each in given for listener in each}
    assert addresses == {"127.0.0.1"}
