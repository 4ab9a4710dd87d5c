"""Draws partitions as bars: from the start of the run under way over what is committed to its stop, and
what waits behind it.

A table has a bar for each of the partitions with the largest lags. Where a topic has many, a *strip*
shows all of them side by side, one thin column each, in three paths whatever their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from airflow_kstreams.explore.tables import Table
from airflow_kstreams.inspect import PartitionLag, SeenLag
from airflow_kstreams.inspect.tables_of import number_text
from airflow_kstreams.pages.views.drawings.shown_tables import Bar, BarPart, ShownTable, scaled
from airflow_kstreams.streams.figures.number_texts import counted

#: Rows with a bar, and rows of the table of all partitions.
BARS = 20
ROWS = 1_000
#: From so many partitions of a topic on a strip is drawn.
_STRIP_FROM = 24
STRIP_HEIGHT = 60
_COLUMNS = ("topic", "partition", "start", "position", "stop", "end", "lag")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStrip:
    """All partitions of a topic that wait, side by side.

    :param name: unique on the page.
    :param topic: the topic.
    :param partitions: number of partitions that are drawn.
    :param done: path of what the run under way has committed.
    :param left: path of what it has still to read.
    :param waiting: path of what waits behind it, or for the next run.
    :param text: what is drawn, in words.
    """

    name: str
    topic: str
    partitions: int
    done: str
    left: str
    waiting: str
    text: str


def partition_tables(lag: SeenLag) -> tuple[ShownTable, ShownTable | None]:
    """Return the table of the partitions with the largest lags, each with a bar, and the one of all that
    were read where these are more.
    """
    shown = lag.partitions[:BARS]
    largest = max((part.lag or 0 for part in shown), default=0)
    first = ShownTable(
        name="partitions",
        table=_table("Partitions with the largest lags", shown),
        bars=[_bar(part, largest) for part in shown],
        bars_title="start, committed, stop, end",
    )
    if len(lag.partitions) <= BARS:
        return first, None
    listed = lag.partitions[:ROWS]
    more = lag.more_partitions + len(lag.partitions) - len(listed)
    ordered = sorted(listed, key=attrgetter("topic", "partition"))
    return first, ShownTable(name="all-partitions", table=_table("Partitions with a lag", ordered, more=more))


def _table(title: str, parts: Sequence[PartitionLag], *, more: int = 0) -> Table:
    return Table(
        title=title,
        columns=_COLUMNS,
        rows=[
            (
                part.topic,
                str(part.partition),
                "" if part.start is None else f"{part.start:,}",
                f"{part.position:,}",
                "" if part.stop is None else f"{part.stop:,}",
                "gone" if part.end is None else f"{part.end:,}",
                number_text(part.lag),
            )
            for part in parts
        ],
        numbers=6,
        more=more,
    )


def _bar(part: PartitionLag, largest: int) -> Bar:
    """Return the bar of a partition: of the run under way on the scale of its own offsets, else its lag
    beside the largest one.
    """
    end = part.position if part.end is None else part.end
    if part.start is None or part.stop is None:
        return [scaled("waiting", 0, part.lag or 0, (0, max(largest, 1)))]
    whole = (part.start, max(part.stop, end))
    return [
        scaled("done", part.start, part.position, whole),
        scaled("left", part.position, part.stop, whole),
        scaled("waiting", max(part.stop, part.position), end, whole),
    ]


def strips(lag: SeenLag) -> Iterator[PartitionStrip]:
    """Yield a strip for each topic of which many partitions wait."""
    ordered = sorted(lag.partitions[:ROWS], key=attrgetter("topic", "partition"))
    for number, (topic, found) in enumerate(groupby(ordered, key=attrgetter("topic"))):
        parts = [*found]
        if len(parts) >= _STRIP_FROM:
            yield _strip(f"strip-{number}", topic, parts)


def _strip(name: str, topic: str, parts: Sequence[PartitionLag]) -> PartitionStrip:
    sizes = [_sizes(part) for part in parts]
    largest = max(max(map(sum, sizes)), 1)
    paths: list[list[str]] = [[], [], []]
    for place, of_part in enumerate(sizes):
        below = 0.0
        for path, size in zip(paths, of_part, strict=True):
            height = size / largest * STRIP_HEIGHT
            if height > 0:
                path.append(f"M{place + 0.1:.1f} {STRIP_HEIGHT - below:.2f}h.8v-{height:.2f}h-.8z")
            below += height
    least, most = min(map(sum, sizes)), max(map(sum, sizes))
    return PartitionStrip(
        name=name,
        topic=topic,
        partitions=len(parts),
        done="".join(paths[0]),
        left="".join(paths[1]),
        waiting="".join(paths[2]),
        text=(
            f"One column a partition, from {parts[0].partition} to {parts[-1].partition}; the smallest has "
            f"{counted(least, 'offset')}, the largest {most:,}. The table of partitions has the same figures."
        ),
    )


def _sizes(part: PartitionLag) -> tuple[int, int, int]:
    """Return the offsets of a partition that are done, left to the run under way, and waiting behind it."""
    end = part.position if part.end is None else part.end
    if part.start is None or part.stop is None:
        return 0, 0, max(0, part.lag or 0)
    behind = max(part.stop, part.position)
    return (
        max(0, part.position - part.start),
        max(0, part.stop - part.position),
        max(0, end - behind),
    )


def parts_in_words() -> tuple[tuple[BarPart, str], ...]:
    """Return a sample of each part of a bar, with its meaning."""
    return (
        (BarPart("done", 0, 100), "committed by the run under way"),
        (BarPart("left", 0, 100), "left to it, up to its stop"),
        (BarPart("waiting", 0, 100), "waits for the next run"),
    )
