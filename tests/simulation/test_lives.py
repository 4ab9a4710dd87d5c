"""The lives of applications: the oracle notices what it is there for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from airflow_kstreams.batch.evidence.prior_runs import PriorRuns
from airflow_kstreams.batch.protocol.replay_records import Replays
from airflow_kstreams.batch.replay.replay import DeadLetterReplay
from airflow_kstreams.batch.run import source_topics
from airflow_kstreams.batch.run.begin import freeze, groundwork
from airflow_kstreams.streams.records.record_queue import PartitionTimes
from airflow_kstreams.streams.runtime import processor_topology
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb_files import RocksDBFiles
from tests.simulation import scenario
from tests.simulation.life import live

_PACKAGE = "airflow_kstreams.batch"


def nothing(*_: Any, **__: Any) -> Any:
    return []


def _take_any_mark(self: RocksDBFiles, mark: bytes) -> None:
    self._database.delete(b"mark", write_opt=self._write_options)


#: What is left out, and what lives show then.
FAULTS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], str]] = {
    "an offset that another consumer moved is taken as it is": (
        lambda: mock.patch.object(freeze, "find_moved_between_runs", nothing),
        "lacks",
    ),
    "changes in place reach stores": (
        lambda: mock.patch.object(processor_topology, "handing_to_functions", lambda _: frozenset()),
        "a change in place reached the store",
    ),
    "records between subtopologies are left behind": (
        lambda: mock.patch.object(groundwork, "refuse_unread", nothing),
        "lacks",
    ),
    "a renamed store begins empty": (
        lambda: mock.patch.object(source_topics, "refuse_left_behind", nothing),
        "begins empty in silence",
    ),
    "a store that comes back goes on with what it had": (
        lambda: mock.patch.object(source_topics, "refuse_returned", nothing),
        "records passed it by",
    ),
    "what is lost is left out": (
        lambda: mock.patch.object(groundwork, "refuse_losses", nothing),
        "",
    ),
    "times begin anew when offsets expire": (
        lambda: mock.patch.object(PriorRuns, "times_of", lambda self, partition: PartitionTimes()),
        "window",
    ),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS)
def test_life_shows_what_is_wrong(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    patch, shows = FAULTS[fault]
    with patch():
        seed, found = next((s, found) for s in range(1_500) if shows in (found := live(s)) and found)
    with capsys.disabled():
        print(f"\n{fault}: seed {seed}: {found.splitlines()[0][:150]}", end="")
    assert not live(seed), "without the fault the same life is right"


def test_seed_has_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "live", lambda seed, *, trace: f"life of {seed}")
    assert scenario.simulate(1).violation == "life of 1"
