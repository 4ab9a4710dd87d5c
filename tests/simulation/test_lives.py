"""The lives of applications: the oracle notices what it is there for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from airflow_kstreams.batch.run import source_topics
from airflow_kstreams.batch.run.begin import freeze, left_unread
from airflow_kstreams.streams.runtime import processor_topology
from tests.simulation import scenario
from tests.simulation.life import live


def nothing(*_: Any, **__: Any) -> Any:
    return []


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
    "a renamed store begins empty": (
        lambda: mock.patch.object(source_topics, "refuse_left_behind", nothing),
        "in silence",
    ),
    "lines whose names are exchanged go on with each other's state": (
        lambda: mock.patch.object(source_topics, "refuse_exchanged", nothing),
        "in silence",
    ),
}


#: What is left out, the seed of a life that comes to where that shows, and what it shows.
TELLING: dict[str, tuple[Callable[[], AbstractContextManager[Any]], int, str]] = {
    "other records that took offsets pass": (
        lambda: mock.patch.object(freeze, "find_rewritten", nothing),
        42,
        "other records took offsets that were read, in silence",
    ),
    "a branch takes the records of the one whose topic it got": (
        lambda: mock.patch.object(left_unread, "fed_before", lambda *_: ()),
        52,
        "code without their branch ran",
    ),
}


@pytest.mark.parametrize("mistake", TELLING)
def test_seed_comes_to_where_a_mistake_shows(mistake: str) -> None:
    patch, seed, shows = TELLING[mistake]
    with patch():
        assert shows in live(seed)
    assert not live(seed)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS)
def test_life_shows_what_is_wrong(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    patch, shows = FAULTS[fault]
    with patch():
        seed, found = next((s, found) for s in range(100) if shows in (found := live(s)))
    with capsys.disabled():
        print(f"\n{fault}: seed {seed}: {found.splitlines()[0][:150]}", end="")
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
