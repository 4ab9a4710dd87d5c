"""The lives of applications: the oracle notices what it is there for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from airflow_kstreams.batch.run import source_topics
from airflow_kstreams.batch.run.begin import freeze, groundwork, left_unread
from airflow_kstreams.streams.runtime import processor_topology
from tests.simulation import scenario
from tests.simulation.life import live


def nothing(*_: Any, **__: Any) -> Any:
    return []


#: What is left out, the seed of a life that comes to where that shows, and what it shows. A change of what
#: lives draw gives each another seed: the first that shows it.
FAULTS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], int, str]] = {
    "an offset that another consumer moved is taken as it is": (
        lambda: mock.patch.object(freeze, "find_moved_between_runs", nothing),
        10,
        "lacks",
    ),
    "changes in place reach stores": (
        lambda: mock.patch.object(processor_topology, "handing_to_functions", lambda _: frozenset()),
        3,
        "a change in place reached the store",
    ),
    "a renamed store begins empty": (
        lambda: mock.patch.object(source_topics, "refuse_left_behind", nothing),
        78,
        "in silence",
    ),
    "lines whose names are exchanged go on with each other's state": (
        lambda: mock.patch.object(source_topics, "refuse_exchanged", nothing),
        4994,
        "in silence",
    ),
    "other records that took offsets pass": (
        lambda: mock.patch.object(freeze, "find_rewritten", nothing),
        10,
        "other records took offsets that were read, in silence",
    ),
    "a branch takes the records of the one whose topic it got": (
        lambda: mock.patch.object(left_unread, "fed_before", lambda *_: ()),
        75,
        "code without their branch ran",
    ),
    "letters come back to a topic that the code has dropped": (
        lambda: mock.patch.object(groundwork, "dropped_inputs", nothing),
        25,
        "drops in silence",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_life_shows_what_is_wrong(fault: str) -> None:
    patch, seed, shows = FAULTS[fault]
    with patch():
        assert shows in live(seed)
    assert not live(seed), "without the fault the same life is right"


def test_seed_has_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "live", lambda seed, *, trace: f"life of {seed}")
    assert scenario.simulate(1).violation == "life of 1"


def test_life_is_the_same_each_time() -> None:
    def told(seed: int) -> list[str]:
        lines: list[str] = []
        assert not live(seed, trace=lines.append)
        return lines

    seed = next(seed for seed in range(20) if told(seed))
    assert told(seed) == told(seed)
