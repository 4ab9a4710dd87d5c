"""Counts the records that a task reads, writes and leaves out, where that happens.

A record is counted where it is read from a topic, written to one, or left out at a node by a rule. Loops
count in local variables and add them up at the end of each batch; closures count in cells of
:class:`Counters`. Both cover one attempt; a :class:`RecordCounts` is committed with the offsets, so it covers
exactly the committed records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal, Protocol

import msgspec

#: Why a record went no further at a node.
#:
#: - ``filtered``: no predicate was true of it.
#: - ``unmatched``: the table that it was to be joined with had no entry for it.
#: - ``null``: it had no key, or no value, where the node needs one.
#: - ``late``: its window had closed, or a versioned table has newer records.
#: - ``undated``: its timestamp extractor gave none, and says that such records are skipped.
#: - ``skipped``, ``dead-lettered``: an error handler took it.
Rule = Literal["filtered", "unmatched", "null", "late", "undated", "skipped", "dead-lettered"]

#: The rules that make up ``records_dropped`` of a task's report.
DROPPING: frozenset[Rule] = frozenset(("null", "late", "undated", "skipped"))
#: Name for all nodes whose counts had no room in the offset metadata.
OTHER_NODES = ""


def shown_node(node: str, purposes: Mapping[str, str]) -> str:
    """Return a node's name for people, with what it does and the user's line.

    :param node: name of the node, or ``OTHER_NODES``.
    :param purposes: node -> what it does, as far as it is known.
    """
    if node == OTHER_NODES:
        return "other nodes"
    return f"{node} ({purposes[node]})" if node in purposes else node


class _CountedSubtopology(Protocol):
    @property
    def sources(self) -> tuple[str, ...]: ...

    @property
    def sinks(self) -> tuple[str, ...]: ...


class LeftOut(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Records that went no further at a node.

    :param node: name of the node; ``global table <topic>`` for records of a global table, read once in a run;
        empty for several nodes, see ``OTHER_NODES``.
    :param rule: rule by which they were left out.
    :param records: number of these records.
    """

    node: str
    rule: str
    records: int


class RecordCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Counts of records since a slice's start, of one task or of all.

    :param read: source topic -> number of records consumed, without those of ``outside``.
    :param outside: source topic -> number of records read and left out because they are dated outside the
        run's data interval; topics without such are absent.
    :param written: topic -> number of records that sinks sent.
    :param sent: topic -> number of records that processors sent by the topic's name.
    :param left_out: the counts of records that went no further, the largest first.
    """

    read: dict[str, int] = {}
    outside: dict[str, int] = {}
    written: dict[str, int] = {}
    sent: dict[str, int] = {}
    left_out: tuple[LeftOut, ...] = ()

    @property
    def output(self) -> dict[str, int]:
        """Records sent in all, by topic."""
        return _added(self.written, self.sent)

    def consumed(self, subtopologies: Collection[_CountedSubtopology]) -> int:
        """Return the number of records that subtopologies have read from topics which none of them writes.

        :param subtopologies: the subtopologies whose tasks counted.
        """
        written = {topic for sub in subtopologies for topic in sub.sinks}
        return sum(count for topic, count in self.read.items() if topic not in written)

    def produced(self, subtopologies: Collection[_CountedSubtopology]) -> int:
        """Return the number of records that subtopologies have written to topics which none of them reads.

        :param subtopologies: the subtopologies whose tasks counted.
        """
        read = {topic for sub in subtopologies for topic in sub.sources}
        return sum(count for topic, count in self.output.items() if topic not in read)

    def at(self, node: str) -> int:
        """Return the number of records that went no further at a node."""
        return sum(entry.records for entry in self.left_out if entry.node == node)

    def by(self, *rules: str) -> int:
        """Return the number of records that went no further by these rules."""
        return sum(entry.records for entry in self.left_out if entry.rule in rules)

    @property
    def by_rule(self) -> dict[str, int]:
        """The number of records that went no further, by rule."""
        totals: dict[str, int] = {}
        for entry in self.left_out:
            totals[entry.rule] = totals.get(entry.rule, 0) + entry.records
        return totals

    def largest(self, number: int) -> RecordCounts:
        """Return the same with only so many nodes by name; the others are added up by rule."""
        named = [entry for entry in self.left_out if entry.node != OTHER_NODES]
        rest = [entry for entry in self.left_out if entry.node == OTHER_NODES]
        rest += [LeftOut(OTHER_NODES, entry.rule, entry.records) for entry in named[number:]]
        return msgspec.structs.replace(self, left_out=_in_order([*named[:number], *rest]))

    def __add__(self, other: RecordCounts) -> RecordCounts:
        return RecordCounts(
            read=_added(self.read, other.read),
            outside=_added(self.outside, other.outside),
            written=_added(self.written, other.written),
            sent=_added(self.sent, other.sent),
            left_out=_in_order([*self.left_out, *other.left_out]),
        )


def counts_in_all(counts: Iterable[RecordCounts | None]) -> RecordCounts | None:
    """Add up counts; None (not known) if one of them is."""
    total = RecordCounts()
    for each in counts:
        if each is None:
            return None
        total += each
    return total


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _in_order(entries: Iterable[LeftOut]) -> tuple[LeftOut, ...]:
    """Add up entries of the same node and rule, and put the largest first."""
    totals: dict[tuple[str, str], int] = {}
    for entry in entries:
        place = (entry.node, entry.rule)
        totals[place] = totals.get(place, 0) + entry.records
    added = (LeftOut(node, rule, records) for (node, rule), records in totals.items() if records)
    return tuple(sorted(added, key=lambda entry: (-entry.records, entry.node, entry.rule)))


#: What nodes left out, by node and rule.
LeftOutCounts = list[tuple[tuple[str, Rule], int]]


class Counters:
    """The counts of one attempt of a task; a cell is a list that holds one number.

    :param early: names of the nodes that count for records that are not released yet; their counts are in no
        sum until they are taken out and added.
    """

    def __init__(self, early: frozenset[str] = frozenset()) -> None:
        self._early = early
        self._early_cells: dict[tuple[str, Rule], list[int]] = {}
        self._left_out: dict[tuple[str, Rule], list[int]] = {}
        self._written: dict[str, list[int]] = {}
        self._sent: dict[str, list[int]] = {}

    def left_out(self, node: str, rule: Rule) -> list[int]:
        """Return the cell that counts the records which a rule of a node leaves out."""
        if node in self._early:
            return self._early_cells.setdefault((node, rule), [0])
        return self._left_out.setdefault((node, rule), [0])

    def written(self, topic: str) -> list[int]:
        """Return the cell that counts the records which sinks send to a topic."""
        return self._written.setdefault(topic, [0])

    def sent(self, topic: str) -> list[int]:
        """Return the cell that counts the records which processors send to a topic by its name."""
        return self._sent.setdefault(topic, [0])

    def counting(self, node: str, rule: Rule) -> Callable[[], None]:
        """Return a function that counts one record left out."""
        cell = self.left_out(node, rule)

        def count() -> None:
            cell[0] += 1

        return count

    def take_early(self) -> LeftOutCounts:
        """Take out, and return, the counts of nodes for records that are not released yet."""
        taken: LeftOutCounts = []
        for place, cell in self._early_cells.items():
            if cell[0]:
                taken.append((place, cell[0]))
                cell[0] = 0
        return taken

    def add(self, counts: Iterable[tuple[tuple[str, Rule], int]]) -> None:
        """Add counts that :meth:`take_early` returned."""
        for place, number in counts:
            self._left_out.setdefault(place, [0])[0] += number

    @property
    def output(self) -> int:
        """Records sent, dead letters excluded."""
        return sum(cell[0] for cells in (self._written, self._sent) for cell in cells.values())

    @property
    def dropped(self) -> int:
        """Records dropped by rule, and those that an error handler skipped."""
        return sum(cell[0] for (_, rule), cell in self._left_out.items() if rule in DROPPING)

    @property
    def dead_lettered(self) -> int:
        """Records sent to the dead-letter topic."""
        return sum(cell[0] for (_, rule), cell in self._left_out.items() if rule == "dead-lettered")

    def counts(self, *, read: Mapping[str, int], outside: Mapping[str, int]) -> RecordCounts:
        """Return all counts but those of the records read."""
        return RecordCounts(
            read=dict(read),
            outside=dict(outside),
            written={topic: cell[0] for topic, cell in self._written.items()},
            sent={topic: cell[0] for topic, cell in self._sent.items() if cell[0]},
            left_out=_in_order(LeftOut(node, rule, cell[0]) for (node, rule), cell in self._left_out.items()),
        )
