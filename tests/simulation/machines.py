"""Machines of a world: each has a clock that runs and stands as it likes, and a disk that outlives processes.

The clock of a machine is off by some time, runs at a rate of its own, and may be set while runs go on. The
disk holds the local state of tasks; what a dead process still does there has no effect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from airflow_kstreams.streams.state.files.state_folder import LocalFiles
from tests.simulation.sometimes import sometimes

if TYPE_CHECKING:
    from tests.simulation.world import World

EPOCH_SECONDS = 1_700_000_000.0
_HOUR_MS = 3_600_000
#: The rate of the fastest clock.
FASTEST = 1.04


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine.

    :param offset_ms: how far its clock is ahead of the broker's.
    :param rate: seconds of its clock in one of the broker's.
    :param set_at: when its clock is set, seconds of the world.
    :param set_by_ms: by how much.
    :param disk: folder for the local state of tasks; empty for none.
    """

    name: str = "machine"
    offset_ms: int = 0
    rate: float = 1.0
    set_at: float = 0.0
    set_by_ms: int = 0
    disk: str = ""

    def now_ms(self, seconds: float) -> int:
        """Return what its clock says, epoch milliseconds.

        :param seconds: of the world.
        """
        set_by_ms = self.set_by_ms if seconds >= self.set_at else 0
        if set_by_ms and self.set_at:
            sometimes("a clock was set while a run was under way")
        return round((EPOCH_SECONDS + seconds * self.rate) * 1000) + self.offset_ms + set_by_ms


def drawn_machines(random: Random, disk: str) -> tuple[Machine, ...]:
    """Draw the machines of a seed: often one with a true clock, else some whose clocks differ.

    :param disk: folder for their disks; empty for none.
    """
    true = Machine(disk=disk and f"{disk}/true")
    # Files that another machine's task left behind are found by a task that comes back.
    if random.random() < (0.1 if disk else 0.4):
        return (true,)
    return (
        true,
        *(
            Machine(
                name=f"machine {number}",
                offset_ms=random.choice((0, -40, 700, -20_000, 20_000, _HOUR_MS, -8 * _HOUR_MS)),
                rate=random.choice((1.0, 1.0, 0.96, FASTEST)),
                set_at=random.choice((0.0, 0.0, 0.5, 3.0)),
                set_by_ms=random.choice((-15_000, 15_000, _HOUR_MS)),
                disk=disk and f"{disk}/{number}",
            )
            for number in range(random.choice((1, 2)))
        ),
    )


@dataclass(frozen=True, slots=True)
class ProcessClock:
    """The port ``Clock`` of a process: its machine's."""

    world: World
    machine: Machine

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        return self.machine.now_ms(self.world.seconds)

    def monotonic_seconds(self) -> float:
        """Return seconds that never run backwards."""
        return self.world.seconds * self.machine.rate

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.world.sleep(seconds / self.machine.rate)


class ProcessFiles(LocalFiles):
    """Local files of a process, which have no effect once it is dead.

    :param step: called before each step with its name; it may let the process die.
    """

    def __init__(self, step: Callable[[str], None]) -> None:
        self._step = step

    def make_folder(self, path: Path) -> None:
        """See ``LocalFiles``."""
        self._step("make_folder")
        super().make_folder(path)

    def rename(self, source: Path, target: Path) -> None:
        """See ``LocalFiles``."""
        self._step("rename")
        super().rename(source, target)

    def sync_folder(self, path: Path) -> None:
        """Nothing here outlives the machine."""
        self._step("sync_folder")

    def write(self, path: Path, data: bytes) -> None:
        """See ``LocalFiles``."""
        self._step("write")
        path.write_bytes(data)

    def remove(self, path: Path) -> None:
        """See ``LocalFiles``."""
        self._step("remove")
        super().remove(path)

    def remove_tree(self, path: Path) -> None:
        """See ``LocalFiles``."""
        self._step("remove_tree")
        if "." in path.name and path.exists():
            sometimes("local files of a dead task were swept away")
        super().remove_tree(path)
