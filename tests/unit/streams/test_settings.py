"""Names of application settings."""

from __future__ import annotations

import pytest

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import ApplicationSettings

pytestmark = pytest.mark.promise("misspelt-settings-are-refused", "threads-are-shared-whole")


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("commit.intervall.ms", "commit.interval.ms"),
        ("processing.garantee", "processing.guarantee"),
        ("lease_ms", "lease.ms"),
    ],
)
def test_nearest_name_is_told_when_a_setting_is_misspelt(misspelt: str, meant: str) -> None:
    with pytest.raises(ConfigError, match="unknown setting") as caught:
        ApplicationSettings.parse("app", {misspelt: "1"})
    assert caught.value.fix == f"did you mean {meant!r}?"


def test_values_to_choose_from_are_told_when_a_setting_has_another() -> None:
    with pytest.raises(ConfigError) as caught:
        ApplicationSettings.parse("app", {"processing.exception.handler": "ignore"})
    assert caught.value.fix == (
        "choose one of fail, skip, dead-letter (Reaction to a record that a function of the topology, "
        "or a sink's serde, refuses: fail, skip at that node, or dead-letter)"
    )


@pytest.mark.parametrize("handler", [ValueError, lambda context, record, error: "skip"])
def test_text_is_asked_for_when_a_handler_is_a_class_or_a_function(handler: object) -> None:
    with pytest.raises(ConfigError, match="must be one of fail, skip, dead-letter, got <") as caught:
        ApplicationSettings.parse("app", {"processing.exception.handler": handler})
    assert caught.value.fix.startswith("give one of fail, skip, dead-letter as text: a class or function")


@pytest.mark.parametrize("value", ["soon", 0])
def test_number_is_told_what_it_is_when_it_is_none_or_too_small(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        ApplicationSettings.parse("app", {"commit.interval.ms": value})
    assert caught.value.fix == (
        "give such a number (Milliseconds between commits of a task; one with cached results commits at its "
        "next commit point then)"
    )


def test_threads_are_refused_when_a_task_could_not_have_its_own() -> None:
    with pytest.raises(ConfigError, match=r"num\.stream\.threads is 3, less than num\.threads\.per\.task, 4"):
        ApplicationSettings.parse("app", {"num.stream.threads": 3, "num.threads.per.task": 4})


@pytest.mark.parametrize(
    ("stream", "per_task", "at_once", "first", "others"),
    [(1, 1, 1, 1, 1), (4, 1, 4, 1, 1), (4, 2, 2, 2, 2), (7, 3, 2, 4, 3), (5, 5, 1, 5, 5)],
)
def test_slot_shares_its_threads_among_tasks_when_there_are_several(
    stream: int, per_task: int, at_once: int, first: int, others: int
) -> None:
    settings = ApplicationSettings.parse(
        "app", {"num.stream.threads": stream, "num.threads.per.task": per_task}
    )
    assert settings.tasks_at_once == at_once
    assert [settings.of_task(number).num_threads_per_task for number in range(3)] == [first, others, others]
