"""A topology in several runs and attempts: what a commit saves comes back, what comes after it is lost."""

from __future__ import annotations

from typing import Any

from airflow_kstreams.streams import Topology
from tests.support.topology.bound_topology import BoundTopology, Output

#: (key, value, timestamp_ms) of topic ``in``.
Piped = tuple[Any, Any, int]
Change = tuple[bytes, bytes | None, int]


class WindowRuns:
    """Pipes records into ``in`` and collects what was committed to ``out``.

    :param compacted: whether changelogs have lost all but the newest record of each key, and tombstones.
    """

    def __init__(self, topology: Topology, *, compacted: bool = False) -> None:
        self.outputs: list[Output] = []
        self.dropped = 0
        self._topology = topology
        self._compacted = compacted
        self.changelogs: dict[str, list[Change]] = {spec.name: [] for spec in topology.stores}
        self._stream_time_ms = -1
        self._uncommitted: list[Piped] = []
        self.bound = self._restored()

    def pipe(self, key: Any, value: Any, timestamp_ms: int) -> None:
        """Process one record."""
        self._uncommitted.append((key, value, timestamp_ms))
        self.bound.pipe("in", key, value, timestamp_ms=timestamp_ms)

    def commit(self) -> None:
        """Pass a commit point."""
        self.bound.flush()
        for name, changelog in self.changelogs.items():
            changelog += self.bound.stores[name].drain_changes()
        self.outputs += self.bound.read("out")
        self.dropped += self.bound.dropped
        self.bound.dropped = 0
        self._stream_time_ms = self.bound.clock.topics["all"].time_ms
        self._uncommitted = []

    def crash(self, *, closing: bool = False) -> None:
        """Lose what was not committed, and read its records again.

        :param closing: whether the attempt had come to its end, all but the commit.
        """
        if closing:
            self._close()
        again = self._uncommitted
        self._uncommitted = []
        self.bound = self._restored()
        for record in again:
            self.pipe(*record)

    def end_run(self) -> None:
        """Come to the end of the run and begin another."""
        self._close()
        self.commit()
        self.bound = self._restored()

    def _close(self) -> None:
        self.bound.flush()
        self.bound.close()

    def _restored(self) -> BoundTopology:
        bound = BoundTopology(self._topology)
        for name, changelog in self.changelogs.items():
            for change in _compact(changelog) if self._compacted else changelog:
                bound.stores[name].restore(*change)
        bound.clock.topics["all"].time_ms = self._stream_time_ms
        for node in self._topology.nodes:
            for callback in bound.opens.get(node.name, []):
                callback()
        return bound


def _compact(changelog: list[Change]) -> list[Change]:
    newest: dict[bytes, Change] = {}
    for change in changelog:
        newest.pop(change[0], None)
        newest[change[0]] = change
    return [change for change in newest.values() if change[1] is not None]
