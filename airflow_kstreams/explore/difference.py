"""Finds the difference between two explorations of the same sample.

Rule: nodes are compared with their counterparts, which are found by name and, for the numbered nodes of the
DSL, by kind, place and records: an operator added in the middle renumbers all nodes behind it, which are the
same nodes still. At a node, the n-th record from one input record is compared with the n-th record from it
before.

Records are compared as JSON; objects that JSON cannot hold, as they print.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from airflow_kstreams.explore.node_records import NodeRecord
from airflow_kstreams.explore.record_table import ROWS, shown_time
from airflow_kstreams.explore.sample import write_private
from airflow_kstreams.explore.tables import Table
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.record_counts import shown_node
from airflow_kstreams.streams.plan import decode_json

FORMAT = "airflow-kstreams result"
VERSION = 1
_NUMBERED = re.compile(r"(?P<kind>[A-Z]+-[A-Z-]+)-\d{10}\Z")
_LONGEST = 200


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """A record at a node, reduced to text.

    :param origin: the input record that led to it.
    :param key: the key as JSON, or as it prints if JSON cannot hold it.
    :param value: the value in the same form.
    :param timestamp_ms: epoch milliseconds.
    """

    origin: str
    key: str
    value: str
    timestamp_ms: int

    def __str__(self) -> str:
        text = f"{self.key}: {self.value}"
        shortened = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        return f"{shortened} @ {shown_time(self.timestamp_ms)}"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of an exploration, reduced to text so that a later process can compare with them.

    :param sample: digest of the sample.
    :param nodes: name -> records, parents before children.
    """

    sample: str
    nodes: dict[str, list[Seen]]
    format: str = FORMAT
    version: int = VERSION

    def save(self, path: str | Path) -> None:
        """Write the result to a file, as JSON that only its owner may read.

        :param path: replaced if it exists.
        :raises ConfigError: the file cannot be written.
        """
        write_private(path, msgspec.json.encode(self))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a result that was saved.

        :param path: a file of ``save``.
        :raises ConfigError: the file cannot be read, or is no result of this version.
        """
        try:
            result = decode_json(Path(path).read_bytes(), cls)
            if (result.format, result.version) != (FORMAT, VERSION):
                raise ValueError(f"it has version {result.version}, expected {VERSION}")  # noqa: TRY301
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the earlier result {str(path)!r} cannot be read: {error}",
                fix="name the result of an earlier exploration, or delete it",
            ) from None
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A record that differs.

    :param kind: ``added`` has no ``before``, ``removed`` no ``after``.
    :param origin: the input record that led to it.
    """

    kind: Literal["added", "removed", "changed"]
    origin: str
    before: Seen | None
    after: Seen | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDifference:
    """The difference at a node.

    :param name: the node's name now, None if it is gone.
    :param before: its name before, None if it is new.
    :param purpose: what it does now, and your line that made it; empty if it is gone.
    """

    name: str | None
    before: str | None
    changes: tuple[Change, ...]
    purpose: str = ""

    def of(self, kind: str) -> tuple[Change, ...]:
        """Return the changes of one kind."""
        return tuple(change for change in self.changes if change.kind == kind)

    @property
    def title(self) -> str:
        """The node's name, and how it was renamed, added or removed."""
        if self.name is None:
            return f"{self.before} (gone)"
        if self.before is None:
            return f"{self.name} (new)"
        return self.name if self.name == self.before else f"{self.name} (was {self.before})"

    @property
    def heading(self) -> str:
        """The title for people, with what the node does."""
        if self.name is None or not self.purpose:
            return self.title
        return shown_node(self.name, {self.name: self.purpose}) + self.title.removeprefix(self.name)

    def table(self, rows: int = ROWS) -> Table:
        """Return the table of the first changes."""
        shown = self.changes[: max(rows, 0)]
        return Table(
            title=f"{self.heading}: {len(self.changes):,} differences",
            columns=("", "input record", "before", "now"),
            rows=[
                (
                    {"added": "+", "removed": "-", "changed": "~"}[change.kind],
                    change.origin,
                    "" if change.before is None else str(change.before),
                    "" if change.after is None else str(change.after),
                )
                for change in shown
            ],
            more=len(self.changes) - len(shown),
        )

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


class Difference(Sequence[NodeDifference]):
    """The nodes that differ, parents before children; false if there are none."""

    def __init__(self, nodes: Sequence[NodeDifference]) -> None:
        self._nodes = tuple(nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, index: Any) -> Any:
        return self._nodes[index]

    def at(self, node: str) -> NodeDifference | None:
        """Return the difference at a node, None without one."""
        return next((found for found in self._nodes if node in (found.name, found.before)), None)

    def table(self) -> Table:
        """Return the table of the nodes that differ."""
        return Table(
            title="difference to before" if self._nodes else "no difference to before",
            columns=("node", "added", "removed", "changed"),
            numbers=3,
            rows=[
                (node.heading, *(f"{len(node.of(kind)):,}" for kind in ("added", "removed", "changed")))
                for node in self._nodes
            ],
        )

    def __str__(self) -> str:
        return str(self.table()) if self._nodes else "no difference to before"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def reduced(sample: str, nodes: Mapping[str, Sequence[NodeRecord]]) -> Result:
    """Return findings reduced to text.

    :param sample: digest of the sample.
    """
    return Result(sample=sample, nodes={name: [_seen(one) for one in found] for name, found in nodes.items()})


def difference(before: Result, now: Result, purposes: Mapping[str, str]) -> Difference:
    """Return the difference of two results.

    :param purposes: node of the later one -> what it does, and the user's line.
    :raises ConfigError: the two are of different samples.
    """
    if before.sample != now.sample:
        raise ConfigError(
            "the two explorations are of different samples: their records cannot be compared",
            fix="run both on the same sample",
        )
    found: list[NodeDifference] = []
    for old, new in _counterparts(before, now):
        changes = tuple(
            _changes(before.nodes[old] if old is not None else [], now.nodes[new] if new is not None else [])
        )
        if changes or old is None or new is None:
            purpose = "" if new is None else purposes.get(new, "")
            found.append(NodeDifference(name=new, before=old, changes=changes, purpose=purpose))
    return Difference(found)


def _counterparts(before: Result, now: Result) -> Iterator[tuple[str | None, str | None]]:
    """Pair the nodes, in order: first those of one kind with equal records, then by kind the nodes between
    them.

    So an operator added next to one of its own kind is distinguished from it.
    """
    old_names, new_names = list(before.nodes), list(now.nodes)
    for same, old, new in _matched(
        [(_kind(name), tuple(seen)) for name, seen in before.nodes.items()],
        [(_kind(name), tuple(seen)) for name, seen in now.nodes.items()],
    ):
        olds, news = old_names[old], new_names[new]
        if same:
            yield from zip(olds, news, strict=True)
            continue
        for alike, inner_old, inner_new in _matched(list(map(_kind, olds)), list(map(_kind, news))):
            if alike:
                yield from zip(olds[inner_old], news[inner_new], strict=True)
            else:
                yield from ((name, None) for name in olds[inner_old])
                yield from ((None, name) for name in news[inner_new])


def _matched(before: Sequence[Hashable], now: Sequence[Hashable]) -> Iterator[tuple[bool, slice, slice]]:
    """Yield the stretches of two sequences that are equal and those that are not, in order."""
    matcher = SequenceMatcher(a=before, b=now, autojunk=False)
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        yield kind == "equal", slice(start, end), slice(new_start, new_end)


def _kind(name: str) -> str:
    """Return a numbered node's kind, and the name of any other."""
    match = _NUMBERED.match(name)
    return match["kind"] if match else name


def _changes(before: Sequence[Seen], now: Sequence[Seen]) -> Iterator[Change]:
    olds, news = _by_origin(before), _by_origin(now)
    for origin in dict.fromkeys([*news, *olds]):
        for old, new in zip_longest(olds.get(origin, []), news.get(origin, [])):
            if old is None:
                yield Change(kind="added", origin=origin, before=None, after=new)
            elif new is None:
                yield Change(kind="removed", origin=origin, before=old, after=None)
            elif old != new:
                yield Change(kind="changed", origin=origin, before=old, after=new)


def _by_origin(records: Sequence[Seen]) -> dict[str, list[Seen]]:
    grouped: dict[str, list[Seen]] = {}
    for record in records:
        grouped.setdefault(record.origin, []).append(record)
    return grouped


def _seen(record: NodeRecord) -> Seen:
    return Seen(record.origin, _text(record.key), _text(record.value), record.timestamp_ms)


def _text(thing: Any) -> str:
    try:
        return msgspec.json.encode(thing, enc_hook=repr, order="deterministic").decode()
    except Exception:  # e.g. keys of a dict that JSON cannot hold
        return repr(thing)
