"""Local files that a task left on one machine, and finds again there after the state has moved on elsewhere.

Seeds draw machines and their disks; these two stories take longer than a seed's runs: tombstones that are
gone from a changelog, and a changelog that a reset made anew. Files that are older than either would bring
deleted rows back.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.batch.reset.scenario import TO_EARLIEST
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.simulation.applications import APPLICATIONS
from tests.simulation.protections import PROTECTIONS
from tests.simulation.stages import APPLICATION_ID, CHANGELOG, DELETE_RETENTION_MS
from tests.simulation.steps import Steps
from tests.support.kafka.in_process import Application


class Scene:
    """The table join, whose tasks run on one of two machines.

    :param disks: folder for the machines' disks.
    """

    def __init__(self, disks: Path) -> None:
        self._disks = disks
        self.clock = ManualClock(now_ms=1_700_000_000_000)
        self.kafka = InMemoryKafka(clock=self.clock)
        for topic in ("a", "a2", "b", "out"):
            self.kafka.create_topic(topic)
        self._runs = 0

    def run(self, machine: str, *, rows: dict[str, str | None]) -> list[bytes | None]:
        """Change rows of the table, and run with one record of each key; return what came out, in order.

        :param machine: whose disk the tasks have.
        """
        for key, value in rows.items():
            self.kafka.append("a2", None if value is None else value.encode(), key.encode())
        self.clock.sleep(1)
        for key in ("k", "l"):
            self.kafka.append("a", b"1", key.encode())
        self._runs += 1
        app = Application(
            application_id=APPLICATION_ID,
            topology=APPLICATIONS["table_join"].build(Steps("rocksdb")),
            on=self.kafka,
            clock=self.clock,
            settings={"settle.ms": 0, "state.dir": str(self._disks / machine)},
        )
        app.run(f"run-{self._runs}")
        return self.kafka.values("out")[-2:]

    def reset(self) -> None:
        """Begin anew, as a person does who deletes the state."""
        request = ResetRequest(
            application_id=APPLICATION_ID, input_topics=("a", "a2"), scenario=TO_EARLIEST, force=True
        )
        with ApplicationReset(self.kafka, request, clock=self.clock) as reset:
            reset.run()


def deleted_long_ago(disks: Path) -> list[bytes | None]:
    """A row is deleted elsewhere, and its tombstone is gone when the first machine has its turn again."""
    scene = Scene(disks)
    assert scene.run("one", rows={"k": "x", "l": "y"}) == [b"1m+x", b"1m+y"]
    assert scene.run("two", rows={"k": None}) == [b"1m+", b"1m+y"]
    scene.clock.sleep(DELETE_RETENTION_MS / 1000)
    scene.kafka.compact(CHANGELOG, drop_tombstones=True)
    return scene.run("one", rows={})


def made_anew(disks: Path) -> list[bytes | None]:
    """A reset makes the changelog anew; what it says of a deleted row lies before the end of the old one."""
    scene = Scene(disks)
    scene.run("one", rows={"k": "x", "l": "y"})
    scene.run("two", rows={"k": None})
    scene.reset()
    for number in range(3):
        scene.run("two", rows={"l": f"z{number}"})
    return scene.run("one", rows={})


@pytest.mark.parametrize(
    ("protection", "story", "right"),
    [
        ("old checkpoints are not used", deleted_long_ago, [b"1m+", b"1m+y"]),
        ("checkpoints name their changelog", made_anew, [b"1m+", b"1m+z2"]),
    ],
)
def test_files_left_behind_bring_no_row_back(
    protection: str, story: object, right: list[bytes], tmp_path: Path
) -> None:
    assert callable(story)
    assert story(tmp_path / "on") == right
    with PROTECTIONS[protection].missing():
        assert story(tmp_path / "off") != right
