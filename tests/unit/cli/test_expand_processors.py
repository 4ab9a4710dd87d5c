"""``airflow-kstreams expand processors`` and ``expand abort`` on the in-memory Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.expand.processor_expansion import CatchUpOptions, ProcessorExpansion
from airflow_kstreams.batch.growing.state_copy import ThreadCopies
from airflow_kstreams.spark.driver import copies
from tests.support.command_line import json_of
from tests.unit.batch.expand.test_processor_expansion import grown
from tests.unit.cli.test_app import invoke

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer.testing import Result

    from airflow_kstreams.batch.expand.processor_plan import CopiedSource
    from airflow_kstreams.batch.growing.state_copy import CopyWork, Ended
    from airflow_kstreams.streams.settings import ApplicationSettings
    from tests.unit.batch.growing.test_partition_growth import Scene

APPLICATION = ("--application-id", "app", "--bootstrap-server", "in-memory:9092")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """An application of two processors, whose topic has four partitions that have been read."""
    scene = grown(2, 4)
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda *given, **named: scene.kafka)
    return scene


def processors(*arguments: str) -> Result:
    return invoke("expand", "processors", *arguments, *APPLICATION)


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_plan_is_shown_and_nothing_changes_when_run_dry(scene: Scene) -> None:
    result = processors("--to", "4", "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "")
    shown = cells(result.stdout)
    assert ["processors", "2", "->", "4"] in shown
    assert ["the", "new", "ones", "read", "in-2,", "in-3"] in shown
    assert ["app-listed-changelog-0", "2", "-", "45", "0", "0"] in shown
    assert result.stdout.endswith("Dry run: nothing was changed.\n")
    document = json_of(processors("--to", "4", "--dry-run", "--json"), "expand processors")
    (growth,) = document["expansions"]
    assert (growth["before"], growth["count"], growth["reads"]) == (2, 4, ["in-2", "in-3"])
    assert len(scene.kafka.partitions("app-listed-changelog")) == 2


def test_state_is_copied_and_the_next_run_takes_over_when_run(scene: Scene) -> None:
    result = processors("--to", "4", "--no-wait")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "All state is copied: the next run makes the takeover" in result.stdout
    scene.run()
    again = processors("--to", "4")
    assert (again.exit_code, again.stderr) == (0, "")
    assert "Subtopology 0 has 4 processors." in again.stdout


def test_expansion_is_given_up_when_aborted(scene: Scene) -> None:
    processors("--to", "4", "--no-wait")
    dry = invoke("expand", "abort", "--dry-run", *APPLICATION)
    assert ["processors", "2", "->", "4"] in cells(dry.stdout)
    assert dry.stdout.endswith("Dry run: nothing was changed.\n")
    document = json_of(invoke("expand", "abort", "--dry-run", "--json", *APPLICATION), "expand abort")
    assert [(each["before"], each["count"]) for each in document["expansions"]] == [(2, 4)]
    assert invoke("expand", "abort", *APPLICATION).stdout.endswith("Given up.\n")
    assert invoke("expand", "abort", *APPLICATION).stdout == "No processors are on their way.\n"
    scene.run()
    assert len(scene.recorded.by_group) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--to", "5"], 1, "give the topics more partitions first"),
        (["--to", "1"], 1, "2 processors"),
        (["--to", "4", "--subtopology", "7"], 1, "has no subtopology 7"),
        (["--to", "4", "--rate", "0"], 1, "a rate of 0.0 records/s would copy nothing"),
        (["--to", "4", "--parallel", "0"], 2, "--parallel"),
        ([], 2, "--to"),
    ],
)
def test_one_line_says_why_when_an_expansion_is_refused(
    scene: Scene, arguments: list[str], code: int, said: str
) -> None:
    result = processors(*arguments)
    assert result.exit_code == code
    assert said in result.stderr
    if code == 1:
        assert len(result.stderr.splitlines()) == 1 and " -- what to do: " in result.stderr
    assert len(scene.kafka.partitions("app-listed-changelog")) == 2


class WatchedCopies:
    """Copies in threads, and says what was asked for."""

    def __init__(self, scene: Scene) -> None:
        self._copies = ThreadCopies(scene.kafka, scene.app.checked, clock=SystemClock())
        self.asked: list[tuple[list[list[int]], float | None]] = []
        self.cancelled = False

    def copy(self, shares: Sequence[Sequence[CopyWork]], rate: float | None) -> Sequence[Ended]:
        self.asked.append(([[work.source for work in share] for share in shares], rate))
        return self._copies.copy(shares, rate)

    def cancel(self) -> None:
        self.cancelled = True
        self._copies.cancel()


def test_spark_copies_when_a_master_is_given(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    watched, opened = WatchedCopies(scene), list[Any]()

    @contextmanager
    def on_spark(
        config: Mapping[str, str], settings: ApplicationSettings, master: str | None
    ) -> Iterator[WatchedCopies]:
        opened.append((config, settings.application_id, master))
        yield watched

    monkeypatch.setattr(copies, "copies_on_spark", on_spark)
    result = processors("--to", "4", "--no-wait", "--master", "local[2]", "--rate", "10000")
    assert (result.exit_code, result.stderr) == (0, "")
    assert opened == [({"bootstrap.servers": "in-memory:9092"}, "app", "local[2]")]
    assert watched.asked == [([[0], [1]], 5_000.0)]


def test_sources_share_what_copies_them_when_they_are_more(scene: Scene) -> None:
    watched = WatchedCopies(scene)
    with ProcessorExpansion(scene.kafka, scene.app.checked, subtopology=None, count=4) as tool:
        tool.copy_by(watched)
        tool.run(CatchUpOptions(rate=100_000, parallel=1, follow=False))
    assert watched.asked == [([[0, 1]], 100_000)]


def test_copies_end_when_the_command_is_interrupted(scene: Scene) -> None:
    watched = WatchedCopies(scene)

    def interrupt(_: Sequence[CopiedSource]) -> None:
        raise KeyboardInterrupt

    with ProcessorExpansion(scene.kafka, scene.app.checked, subtopology=None, count=4) as tool:
        tool.copy_by(watched)
        with pytest.raises(KeyboardInterrupt):
            # A record per second from each source: it would go on for a minute.
            tool.run(CatchUpOptions(rate=2, follow=False), interrupt)
        assert watched.cancelled
        plan = tool.plan()
    assert all(each.lag for each in plan.sources), "it has not gone on to the end"
