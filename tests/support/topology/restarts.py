"""Tasks that die and come back: a bound topology whose stores are logged, committed and restored.

``WindowRuns`` is the same for a topology from ``in`` to ``out`` whose records are read again after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_kstreams.streams.topology.topology import Topology
from tests.support.topology.bound_topology import BoundTopology, Output

#: (key, value, timestamp_ms) of topic ``in``.
Piped = tuple[Any, Any, int]
#: Key, value and timestamp of a changelog record.
Change = tuple[bytes, bytes | None, int]


@dataclass(slots=True)
class RestartingTopology:
    """Runs a topology whose commits survive: changelogs, outputs, stream time and the count of dropped
    records.
    """

    topology: Topology
    bound: BoundTopology = field(init=False)
    changelogs: dict[str, list[Change]] = field(default_factory=dict)
    outputs: dict[str, list[Output]] = field(default_factory=dict)
    time_ms: int = -1
    dropped: int = 0

    def __post_init__(self) -> None:
        self.bound = BoundTopology(self.topology)

    def commit(self) -> None:
        """Make lasting what was done since the last commit."""
        self.bound.flush()
        for name, store in self.bound.stores.items():
            self.changelogs.setdefault(name, []).extend(store.drain_changes())
        for topic, written in self.bound.outputs.items():
            self.outputs.setdefault(topic, []).extend(written)
        self.bound.outputs.clear()
        self.time_ms = self.bound.clock.topics["all"].time_ms
        self.dropped = self.bound.dropped

    def restart(self) -> None:
        """Forget what was not committed, and go on from what was."""
        self.bound = BoundTopology(self.topology)
        self.bound.clock.topics["all"].time_ms = self.time_ms
        self.bound.dropped_before = self.dropped
        for name, changes in self.changelogs.items():
            for change in changes:
                self.bound.stores[name].restore(*change)
        for callbacks in self.bound.opens.values():
            for callback in callbacks:
                callback()

    def end_run(self) -> None:
        """Come to the clean end of a run, and begin the next."""
        self.bound.close()
        self.commit()
        self.restart()

    def compact(self) -> None:
        """Do what a broker may do to changelogs: keep the newest record of each key, and no tombstone."""
        for name, changes in self.changelogs.items():
            newest = {key: at for at, (key, _, _) in enumerate(changes)}
            self.changelogs[name] = [
                change
                for at, change in enumerate(changes)
                if newest[change[0]] == at and change[1] is not None
            ]

    def written(self, topic: str) -> list[Output]:
        """Return all that was committed to a topic."""
        return self.outputs.get(topic, [])


@dataclass(slots=True)
class WindowRuns:
    """Pipes records into ``in`` and collects what was committed to ``out``, over runs and attempts.

    :param compacted: whether changelogs lose, before each restore, all but the newest record of each key, and
        tombstones.
    """

    topology: Topology
    compacted: bool = False
    task: RestartingTopology = field(init=False)
    uncommitted: list[Piped] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.task = RestartingTopology(self.topology)
        self._restart()

    @property
    def bound(self) -> BoundTopology:
        return self.task.bound

    @property
    def outputs(self) -> list[Output]:
        return self.task.written("out")

    @property
    def dropped(self) -> int:
        return self.task.dropped

    @property
    def changelogs(self) -> dict[str, list[Change]]:
        return self.task.changelogs

    def pipe(self, key: Any, value: Any, timestamp_ms: int) -> None:
        """Process one record."""
        self.uncommitted.append((key, value, timestamp_ms))
        self.bound.pipe("in", key, value, timestamp_ms=timestamp_ms)

    def commit(self) -> None:
        """Pass a commit point."""
        self.task.commit()
        self.uncommitted = []

    def crash(self, *, closing: bool = False) -> None:
        """Lose what was not committed, and read its records again.

        :param closing: whether the attempt had come to its end, all but the commit.
        """
        if closing:
            self._close()
        again, self.uncommitted = self.uncommitted, []
        self._restart()
        for record in again:
            self.pipe(*record)

    def end_run(self) -> None:
        """Come to the end of the run and begin another."""
        self._close()
        self.commit()
        self._restart()

    def _close(self) -> None:
        self.bound.flush()
        self.bound.close()

    def _restart(self) -> None:
        if self.compacted:
            self.task.compact()
        self.task.restart()
