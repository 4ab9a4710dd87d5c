"""Makes the tables and notes of ``dead-letters``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_kstreams.batch.inspect.dead_letters import SeenLetter, SeenLetters
from airflow_kstreams.batch.protocol.replay_records import Replay
from airflow_kstreams.batch.replay.selection import Selection
from airflow_kstreams.cli.documents.letter_documents import bytes_text
from airflow_kstreams.explore.record_table import shown_time
from airflow_kstreams.explore.tables import Table
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.record_counts import shown_node
from airflow_kstreams.streams.records.dead_letter_format import facts_of


def survey_tables(found: SeenLetters) -> Iterator[Table]:
    """Yield dead letters that failed alike, and the newest ones."""
    if found.groups:
        yield Table(
            title=f"Dead letters of {found.topic}",
            columns=("topic", "node", "exception", "earliest", "latest", "waiting", "replayed", "letters"),
            rows=[
                (
                    group.topic or "-",
                    _node(group.node, group.purpose),
                    group.exception or "-",
                    shown_time(group.first_ms),
                    shown_time(group.last_ms),
                    f"{group.waiting:,}",
                    f"{group.replayed:,}",
                    f"{group.letters:,}",
                )
                for group in found.groups
            ],
            numbers=3,
        )
    if found.newest:
        yield Table(
            title="The newest",
            columns=("letter", "record", "exception", "node", "time", "replay"),
            rows=[
                (
                    seen.letter.place,
                    str(seen.letter.origin or "-"),
                    seen.letter.facts.get("exception", "-"),
                    _node(seen.letter.facts.get("node", ""), seen.letter.facts.get("purpose", "")),
                    shown_time(seen.timestamp_ms),
                    seen.fate.value,
                )
                for seen in found.newest
            ],
            more=found.letters - len(found.newest),
        )


def _node(name: str, purpose: str) -> str:
    return shown_node(name, {name: purpose} if purpose else {}) if name else "-"


def survey_notes(found: SeenLetters, selection: Selection) -> Iterator[str]:
    """Yield how many letters wait for a replay."""
    if not found.letters:
        yield f"There are no {selection.which} in {found.topic}."
        return
    waiting, replayed = (sum(getattr(g, name) for g in found.groups) for name in ("waiting", "replayed"))
    stays = found.letters - waiting - replayed
    yield f"Letters: {found.letters:,}; {waiting:,} wait for a replay, {replayed:,} were replayed."
    if stays:
        yield f"{stays:,} stay: they belong to no consumed record, as of timers, or do not hold all of it."


def letter_table(
    seen: SeenLetter,
    facts: Mapping[str, str],
    *,
    values: bool,
    key_serde: str | None,
    value_serde: str | None,
) -> Table:
    """Return the table of one whole letter.

    :param facts: what its headers say of the failure.
    :param values: whether to show key, value and headers of its record.
    :param key_serde: name of the serde to show the key with; None for text.
    :param value_serde: name of the serde to show the value with.
    """
    rows = [*_what_happened(seen, facts), *_record(seen, values, key_serde, value_serde)]
    return Table(title=f"Dead letter {seen.letter.place}", columns=("what", "is"), rows=rows)


def _what_happened(seen: SeenLetter, facts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield "record", str(seen.letter.origin or "none")
    yield "time", shown_time(seen.timestamp_ms)
    yield "replay", seen.fate.value
    for name, text in facts.items():
        yield f"__streams.errors.{name}", text


def _record(
    seen: SeenLetter, values: bool, key_serde: str | None, value_serde: str | None
) -> Iterator[tuple[str, str]]:
    record = seen.letter.record
    for what, data, serde in (("key", record.key(), key_serde), ("value", record.value(), value_serde)):
        yield what, bytes_text(data, serde) if values or serde else _size(data)
    for name, data in facts_of(record.headers())[1]:
        yield f"header {name}", bytes_text(data, None) if values else _size(data)


def _size(data: bytes | None) -> str:
    return "none" if data is None else f"{counted(len(data), 'byte')} (--values shows them)"


def replay_table(found: Replay) -> Table:
    """Return the table of the records that a replay brings back."""
    return Table(
        title=f"Dead letters of {found.dead_letter_topic}",
        columns=("topic they came from", "records"),
        rows=[(topic, str(count)) for topic, count in found.records_per_topic.items()],
        numbers=1,
    )


def replay_notes(found: Replay, *, dry_run: bool) -> Iterator[str]:
    """Yield the letters that a replay leaves, and why."""
    if not found.records:
        yield f"There is nothing to bring back from {found.dead_letter_topic}."
    for store, count in found.late.items():
        yield (
            f"Too late: {count:,} of these records, dated where all windows of {store!r} have closed; "
            "the next run drops there what reaches it, and counts it as late."
        )
    if found.late_unknown:
        yield (
            f"Of {found.late_unknown:,} of these records it is not known whether their windows have closed; "
            "the next run counts as late what it drops."
        )
    if found.unselected:
        yield f"For a later replay: {counted(found.unselected, 'letter')} outside --where."
    if found.at_limit:
        yield f"For a later replay: all letters past the limit of {counted(found.limit, 'record')}."
    if found.repeated:
        yield f"Passed by: {counted(found.repeated, 'letter')} whose record another letter brought back."
    if found.without_origin:
        yield f"Left alone: {counted(found.without_origin, 'letter')} of no consumed record, as of timers."
    if found.left_out:
        yield (
            f"Left alone: {counted(found.left_out, 'letter')} without their records, which did not fit; "
            "their header __streams.errors.left.out says so, and .topic, .partition and .offset where the "
            "record is."
        )
    if found.expired:
        yield f"Deleted before their letters were replayed: {counted(found.expired, 'offset')}."
    yield "Dry run: nothing was changed." if dry_run else "Done."
