"""Shows dead letters by error: counts by source topic, node and class of the exception, and places of the
newest.

Of a letter only names, places and times are taken: no header of its record, no key, no value, and no
message of the exception, which may quote them. Letters are records that other programs can write, too:
what does not look like the name of a class or of a topic is not shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_kstreams.explore.tables import Table
from airflow_kstreams.inspect import LetterGroup, SeenLetter, SeenLetters
from airflow_kstreams.pages.views.drawings.shown_tables import ShownTable, scaled
from airflow_kstreams.streams.figures.time_texts import time_text

_CLASS = re.compile(r"[A-Za-z_][\w.]{0,199}", re.ASCII)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MOST_NODE = 300
_MOST_GROUPS = 50


def letter_tables(found: SeenLetters) -> Iterator[ShownTable]:
    """Yield the table of letters by error, with their share as bars, and the one of the newest letters."""
    if found.groups:
        yield _by_error(found)
    if found.newest:
        yield _newest(found)


def _by_error(found: SeenLetters) -> ShownTable:
    shown = found.groups[:_MOST_GROUPS]
    largest = max(group.letters for group in shown)
    table = Table(
        title=f"Dead letters of {found.topic}",
        columns=("exception", "topic", "node", "earliest", "latest", "waiting", "replayed", "letters"),
        rows=[_row(group) for group in shown],
        numbers=3,
        more=len(found.groups) - len(shown),
    )
    bars = [
        (
            scaled("waiting", 0, group.waiting, (0, largest)),
            scaled("done", group.letters - group.replayed, group.letters, (0, largest)),
        )
        for group in shown
    ]
    return ShownTable(name="letters", table=table, bars=bars, bars_title="waiting, replayed")


def _row(group: LetterGroup) -> tuple[str, ...]:
    return (
        _class(group.exception),
        _topic(group.topic),
        _node(group.node),
        time_text(group.first_ms),
        time_text(group.last_ms),
        f"{group.waiting:,}",
        f"{group.replayed:,}",
        f"{group.letters:,}",
    )


def _newest(found: SeenLetters) -> ShownTable:
    table = Table(
        title="The newest",
        columns=("letter", "record", "exception", "node", "time", "replay"),
        rows=[_letter(found.topic, seen) for seen in found.newest],
        more=found.letters - len(found.newest),
    )
    return ShownTable(name="newest-letters", table=table)


def _letter(topic: str, seen: SeenLetter) -> tuple[str, ...]:
    record, origin, facts = seen.letter.record, seen.letter.origin, seen.letter.facts
    return (
        f"{topic}-{record.partition()}@{record.offset()}",
        "-" if origin is None else f"{_topic(origin.topic)}-{origin.partition}@{origin.offset}",
        _class(facts.get("exception", "")),
        _node(facts.get("node", "")),
        time_text(seen.timestamp_ms),
        seen.fate.value,
    )


def _class(name: str) -> str:
    return name if _CLASS.fullmatch(name) else "(no name of a class)" if name else "-"


def _topic(name: str) -> str:
    return name if _TOPIC.fullmatch(name) else "(no name of a topic)" if name else "-"


def _node(name: str) -> str:
    return name[:_MOST_NODE] or "-"
