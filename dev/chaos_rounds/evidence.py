"""What the verifier knows: logs as a read_committed reader finds them, and what another one saw meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dev.chaos_rounds.topics import APPLICATION_ID, PAYMENTS

if TYPE_CHECKING:
    from confluent_kafka import Message

#: Topic and partition number.
Partition = tuple[str, int]


class Row(NamedTuple):
    """One record; headers as text, by name."""

    partition: int
    offset: int
    key: str | None
    value: str | None
    headers: Mapping[str, str] = {}

    def json(self) -> Any:
        """Return the decoded value."""
        return None if self.value is None else msgspec.json.decode(self.value)


class Seen(NamedTuple):
    """One record as the follower wrote it down when it saw it."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None


class Payment(NamedTuple):
    """An input record as the verifier reads it."""

    id: int
    account: str
    number: int
    shop: str
    kind: str
    cents: int


@dataclass(slots=True, kw_only=True)
class Run:
    """What the metadata topic says of a run.

    :ivar spans: start and stop offset of every input partition, as frozen by its first completed marker.
    :ivar between: the stop of every intermediate partition.
    :ivar done: the tasks that have notified, by subtopology and group.
    """

    run_id: str
    spans: dict[Partition, tuple[int, int]]
    finished: int = 0
    between: dict[Partition, int] = field(default_factory=dict)
    done: set[tuple[str, int]] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything a verdict is made from.

    :param logs: every topic that is read, by partition and offset, read_committed, from its beginning.
    :param ends: last stable offset and high watermark.
    :param committed: the application's committed offsets.
    :param seen: the follower's transcript, in its order.
    :param finished: runs that a driver reported as finished.
    """

    logs: Mapping[str, Sequence[Row]]
    ends: Mapping[Partition, tuple[int, int]]
    committed: Mapping[Partition, int]
    seen: Sequence[Seen]
    finished: Sequence[str]

    def payments(self, stops: Mapping[Partition, int]) -> list[Payment]:
        """Return the input records below the stop offsets."""
        return [
            payment_of(row)
            for row in self.logs[PAYMENTS]
            if row.offset < stops.get((PAYMENTS, row.partition), 0)
        ]


def payment_of(row: Row) -> Payment:
    """Decode an input record, or a copy of one."""
    return msgspec.convert(list(row.json().values()), Payment)


def headers_of(message: Message) -> dict[str, str]:
    """Return a record's headers as text."""
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return {str(name): content.decode() for name, content in pairs if isinstance(content, bytes)}


def by_key(rows: Iterable[Row]) -> dict[str | None, list[Row]]:
    """Return rows by key, in their order."""
    grouped: dict[str | None, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row.key].append(row)
    return grouped


def runs_of(rows: Iterable[Row]) -> tuple[list[Run], list[str]]:
    """Fold the metadata topic's whole log, as KIP-95 tells its records.

    :return: runs in the order in which they began, and what must not have happened on the way.
    """
    runs: dict[str, Run] = {}
    wrong: list[str] = []
    stops: dict[str | None, tuple[str, Partition, tuple[int, int]]] = {}
    running = ""
    for row in rows:
        run_id = row.headers.get("kstreams.run", "")
        if row.key == APPLICATION_ID and row.value is not None:
            mine = {partition: span for owner, partition, span in stops.values() if owner == run_id}
            if running not in ("", run_id):
                wrong.append(f"run {run_id} wrote a marker while run {running} was not finished")
            run = runs.setdefault(run_id, Run(run_id=run_id, spans=mine))
            if run.spans != mine:
                wrong.append(f"stop offsets of run {run_id} moved from {run.spans} to {mine}")
            if row.value == "0":
                if run.finished:
                    wrong.append(f"run {run_id} began again after it had finished")
                running = run_id
            else:
                run.finished += 1
                running = ""
        elif row.value is None:
            if running:
                wrong.append(f"run {running} was not finished when {row.key} was deleted")
            stops.pop(row.key, None)
        elif row.headers.get("kstreams.kind") == "stop":
            partition = row.headers["kstreams.topic"], int(row.headers["kstreams.partition"])
            span = int(row.headers["kstreams.start.offset"]), int(row.value)
            if run_id in runs and runs[run_id].spans.get(partition) != span:
                wrong.append(
                    f"stop offset of {partition} moved after run {run_id} had begun: "
                    f"{runs[run_id].spans.get(partition)}, then {span}"
                )
            stops[row.key] = run_id, partition, span
        elif run_id in runs:
            _notify(runs[run_id], row, wrong)
    return list(runs.values()), wrong


def _notify(run: Run, row: Row, wrong: list[str]) -> None:
    """Take in a done notification, or the stop of an intermediate partition."""
    if run.finished:
        wrong.append(f"run {run.run_id} was finished when {row.key} was written")
    if row.headers["kstreams.kind"] == "done":
        run.done.add((row.headers["kstreams.subtopology"], int(row.headers["kstreams.group"])))
        return
    partition = row.headers["kstreams.topic"], int(row.headers["kstreams.partition"])
    stop = int(row.value or 0)
    if run.between.setdefault(partition, stop) != stop:
        wrong.append(
            f"run {run.run_id} moved the stop of {partition} from {run.between[partition]} to {stop}"
        )
