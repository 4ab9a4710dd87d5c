"""Reads the lines of a file as records to publish: JSON, one object a line, or CSV with a heading.

A line of JSON becomes a record's value as it stands. A row of CSV becomes a JSON object: a cell that JSON
would read as a number is that number, an empty cell is null, all else is text. A record's key is the text of
one field, its time another.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import IO, Any, ClassVar, Literal

from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.figures.number_texts import counted

Format = Literal["jsonl", "csv"]

_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
#: A longer line is no record: brokers refuse it, and memory would hold it.
_LONGEST_LINE = 64_000_000


@dataclass(kw_only=True, eq=False, repr=False)
class BadLineError(KStreamsError):
    """A line of a file is no record; it can be mended, or left out.

    :param line: number of the line in the file, from 1.
    :param kind: the fault, without what differs from line to line.
    """

    own_code: ClassVar[str] = "KS-FIRST-001"
    line: int
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """A record to publish.

    :param line: number of its line in the file, from 1.
    :param timestamp_ms: its time; None for the time of sending.
    """

    line: int
    key: bytes | None
    value: bytes
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFormat:
    """The form of a file, and the fields that hold a record's key and time.

    :param key: field that holds a record's key; None for records without one.
    :param time: field that holds a record's time; None for the time of sending.
    :param texts: fields of CSV that are text, whatever they look like.
    """

    format: Format
    key: str | None = None
    time: str | None = None
    texts: frozenset[str] = field(default_factory=frozenset)

    def records(self, file: IO[bytes], name: str) -> Iterator[FileRecord | BadLineError]:
        """Yield each line's record, or what is wrong with the line; lines without text are left out."""
        lines = _TextLines(file, name)
        values = self._json_values(lines) if self.format == "jsonl" else self._csv_values(lines)
        for value in values:
            if isinstance(value, BadLineError):
                yield value
                continue
            text, fields, line = value
            try:
                yield FileRecord(
                    line=line,
                    key=None if self.key is None else _key(fields[self.key]),
                    value=text,
                    timestamp_ms=None if self.time is None else _time_ms(fields[self.time]),
                )
            except KeyError as missing:
                absent = f"has no field {missing.args[0]!r}"
                yield _bad(name, line, absent, f", only {', '.join(fields)[:200]}")
            except ValueError as error:
                yield _bad(name, line, "has a time that cannot be read", f": {error}")

    def _json_values(self, lines: _TextLines) -> Iterator[tuple[bytes, dict[str, Any], int] | BadLineError]:
        for text in lines:
            if isinstance(text, BadLineError):
                yield text
                continue
            if not text.strip():
                continue
            try:
                fields = json.loads(text, parse_constant=_refuse_constant)
            except RecursionError:
                yield _bad(lines.name, lines.number, "is nested too deeply")
            except ValueError as error:
                yield _bad(lines.name, lines.number, "is no JSON", f": {error}")
            else:
                if isinstance(fields, dict):
                    yield text.strip().encode(), fields, lines.number
                else:
                    yield _bad(lines.name, lines.number, "is no JSON object")

    def _csv_values(self, lines: _TextLines) -> Iterator[tuple[bytes, dict[str, Any], int] | BadLineError]:
        rows = csv.reader(lines.texts(), strict=True)
        heading: list[str] | None = None
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield _bad(lines.name, lines.number, "is no CSV", f": {error}")
                continue
            except BadLineError as bad:
                yield bad
                return
            if not "".join(row).strip() and len(row) < 2:
                continue
            if heading is None:
                heading = row
                if double := sorted({name for name in row if row.count(name) > 1}):
                    yield _bad(lines.name, lines.number, "names a column twice", f": {', '.join(double)}")
                    return
            elif len(row) != len(heading):
                cells = counted(len(row), "cell")
                told = f"{lines.name}:{lines.number} has {cells}, the heading has {len(heading)}"
                yield BadLineError(told, line=lines.number, kind="another number of cells")
            else:
                fields = dict(zip(heading, row, strict=True))
                yield self._object(fields).encode(), fields, lines.number

    def _object(self, fields: dict[str, str]) -> str:
        return (
            "{"
            + ", ".join(f"{json.dumps(name)}: {self._literal(name, cell)}" for name, cell in fields.items())
            + "}"
        )

    def _literal(self, name: str, cell: str) -> str:
        if name in self.texts:
            return json.dumps(cell, ensure_ascii=False)
        if not cell:
            return "null"
        return cell if _NUMBER.fullmatch(cell) else json.dumps(cell, ensure_ascii=False)


class _TextLines:
    """The lines of a file as text, and the number of the last one."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.name, self.number = name, 0
        self._file = file

    def __iter__(self) -> Iterator[str | BadLineError]:
        """Yield the lines; an empty one may lie inside a cell of CSV."""
        while line := self._file.readline(_LONGEST_LINE):
            self.number += 1
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                yield _bad(self.name, self.number, f"is longer than {_LONGEST_LINE:,} bytes")
                return
            try:
                text = line.decode("utf-8-sig" if self.number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                where = f": {error.reason} at its byte {error.start}"
                yield _bad(self.name, self.number, "is no UTF-8", where)
                continue
            yield text

    def texts(self) -> Iterator[str]:
        """Yield the lines.

        :raises BadLineError: one cannot be read.
        """
        for line in self:
            if isinstance(line, BadLineError):
                raise line
            yield line


def _key(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _time_ms(value: Any) -> int:
    """Read a time: ISO 8601, UTC unless it says otherwise, or epoch milliseconds."""
    time_ms: int | None = None
    if isinstance(value, str) and value.isdecimal():
        time_ms = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        time_ms = value
    elif isinstance(value, str):
        try:
            read = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            aware = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
            time_ms = round(aware.timestamp() * 1000)
    if time_ms is None or not 0 <= time_ms < 2**63:
        raise ValueError(f"{str(value)[:40]!r} is neither ISO 8601 nor epoch milliseconds from 1970 on")
    return time_ms


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}")


def _bad(name: str, line: int, kind: str, detail: str = "") -> BadLineError:
    return BadLineError(f"{name}:{line} {kind}{detail}", line=line, kind=kind)
