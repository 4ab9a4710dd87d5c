"""Holds the scenarios of Kafka's own application reset tool, which set the offsets of input topics, and reads
the tool's options for them.

An offset that a scenario asks for is moved into the log: below its first offset it becomes that one, at or
past its end it becomes the end, the high watermark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.ports import AdminPort, TopicPartition

_DATETIME = re.compile(
    r"(?P<local>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?P<millis>\.\d{3})?(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?"
)
_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_UNIT_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
#: Topic, partition, offset.
_COLUMNS = 3


class KeptOffsets(NamedTuple):
    """A partition's log: its first offset and its high watermark."""

    start: int
    end: int

    def clamp(self, offset: int) -> int:
        """Return the offset of the log that is nearest."""
        return min(max(offset, self.start), self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """The logs and positions that a scenario may look at.

    :param spans: of every partition to set.
    :param positions: where the next run would start, as far as that is known.
    :param now_ms: epoch milliseconds.
    """

    spans: Mapping[TopicPartition, KeptOffsets]
    positions: Mapping[TopicPartition, int]
    admin: AdminPort
    now_ms: int


class Scenario(Protocol):
    """Says where to set the offsets of input topics."""

    @property
    def option(self) -> str:
        """The scenario as options of a command line, empty for the default."""
        ...

    def targets(self, logs: Logs) -> dict[TopicPartition, int]:
        """Return what is asked for in each partition, whether the log holds it or not.

        :raises ConfigError: the scenario says nothing of a partition.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToEarliest:
    """Sets offsets to the first one of each log.

    :param named: whether it was asked for by name, and is not the default.
    """

    named: bool = True

    @property
    def option(self) -> str:
        """The scenario as options of a command line."""
        return "--to-earliest" if self.named else ""

    def targets(self, logs: Logs) -> dict[TopicPartition, int]:
        """Return the first offsets."""
        return {tp: span.start for tp, span in logs.spans.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToLatest:
    """Sets offsets to the end of each log."""

    @property
    def option(self) -> str:
        """The scenario as options of a command line."""
        return "--to-latest"

    def targets(self, logs: Logs) -> dict[TopicPartition, int]:
        """Return the ends."""
        return {tp: span.end for tp, span in logs.spans.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToOffset:
    """Sets the same offset in each partition."""

    offset: int

    @property
    def option(self) -> str:
        """The scenario as options of a command line."""
        return f"--to-offset {self.offset}"

    def targets(self, logs: Logs) -> dict[TopicPartition, int]:
        """Return the offset."""
        return dict.fromkeys(logs.spans, self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftBy:
    """Shifts where the next run would start by a number of offsets: forward, or backward when negative."""

    offsets: int

    @property
    def option(self) -> str:
        """The scenario as options of a command line."""
        return f"--shift-by {self.offsets}"

    def targets(self, logs: Logs) -> dict[TopicPartition, int]:
        """Return the shifted offsets.

        :raises ConfigError: a partition has no committed offset.
        """
        for tp in sorted(logs.spans):
            if tp not in logs.positions:
                raise ConfigError(
                    f"{tp} has no committed offset that could be shifted",
                    fix="use another scenario, such as --to-earliest",
                )
        return {tp: logs.positions[tp] + self.offsets for tp in logs.spans}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToDatetime:
    """Sets offsets to the first one dated at or after a time; to the end of the log where there is none.

    :param text: as given.
    :param time_ms: epoch milliseconds.
    """

    text: str
    time_ms: int

    @property
    def option(self) -> str:
        """The scenario as options of a command line."""
        return f"--to-datetime {self.text}"

    def targets(self, logs: Logs) -> dict[TopicPartition, int]:
        """Return the offsets at that time."""
        return _at_time(logs, self.time_ms)

    @classmethod
    def parse(cls, text: str) -> ToDatetime:
        """Read ``YYYY-MM-DDThh:mm:ss.sss``, UTC unless a zone follows.

        :raises ConfigError: it is something else.
        """
        time_ms = _epoch_ms(text)
        if time_ms is None:
            raise ConfigError(
                f"--to-datetime {text!r} is not a date and time",
                fix="write YYYY-MM-DDThh:mm:ss.sss, UTC unless a zone follows, such as "
                "2026-01-31T23:00:00.000+01:00",
            )
        return cls(text=text, time_ms=time_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByDuration:
    """Sets offsets as :class:`ToDatetime` does, to the time a duration ago.

    :param text: as given.
    :param duration_ms: milliseconds.
    """

    text: str
    duration_ms: int

    @property
    def option(self) -> str:
        """The scenario as options of a command line."""
        return f"--by-duration {self.text}"

    def targets(self, logs: Logs) -> dict[TopicPartition, int]:
        """Return the offsets at that time."""
        return _at_time(logs, logs.now_ms - self.duration_ms)

    @classmethod
    def parse(cls, text: str) -> ByDuration:
        """Read ``PnDTnHnMnS``.

        :raises ConfigError: it is something else.
        """
        found = _DURATION.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"--by-duration {text!r} is not a duration",
                fix="write PnDTnHnMnS, such as P7D or PT1H30M; the time is counted back from now",
            )
        seconds = sum(float(found[unit] or 0) * size for unit, size in _UNIT_SECONDS.items())
        return cls(text=text, duration_ms=round(seconds * 1000))


@dataclass(frozen=True, slots=True, kw_only=True)
class FromFile:
    """Sets the offsets that a file lists, one line ``topic,partition,offset`` for each partition.

    :param path: of the file.
    :param lines: partition -> number of its line and offset.
    """

    path: str
    lines: Mapping[TopicPartition, tuple[int, int]]

    @property
    def option(self) -> str:
        """The scenario as options of a command line."""
        return f"--from-file {self.path}"

    def targets(self, logs: Logs) -> dict[TopicPartition, int]:
        """Return what the file says.

        :raises ConfigError: it names other partitions, or not all.
        """
        for tp, (number, _) in self.lines.items():
            if tp not in logs.spans:
                raise ConfigError(
                    f"{self.path}:{number}: {tp} is not a partition of the input topics to reset",
                    fix="remove the line, or name its topic by --input-topics",
                )
        missing = sorted(set(logs.spans) - set(self.lines))
        if missing:
            raise ConfigError(
                f"{self.path} says nothing of {missing[0]}"
                + (f" and {len(missing) - 1} more partitions" if missing[1:] else ""),
                fix="add a line topic,partition,offset for each partition of the input topics",
            )
        return {tp: offset for tp, (_, offset) in self.lines.items()}

    @classmethod
    def read(cls, path: Path) -> FromFile:
        """Read a file.

        :raises ConfigError: it cannot be read, or a line has another form.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(f"{str(path)!r} cannot be read: {reason}", fix="name a CSV file") from None
        lines: dict[TopicPartition, tuple[int, int]] = {}
        for number, line in enumerate(text.rstrip().splitlines(), start=1):
            tp, offset = _csv_line(f"{path}:{number}", line)
            if tp in lines:
                raise ConfigError(
                    f"{path}:{number}: {tp} is on line {lines[tp][0]}, too", fix="remove one of the lines"
                )
            lines[tp] = (number, offset)
        if not lines:
            raise ConfigError(
                f"{str(path)!r} is empty", fix="add a line topic,partition,offset for each partition"
            )
        return cls(path=str(path), lines=lines)


def one_scenario(asked: Mapping[str, Scenario | None]) -> Scenario:
    """Return the one scenario that was asked for, the default when none was.

    :param asked: by option.
    :raises ConfigError: there are several.
    """
    found = {option: scenario for option, scenario in asked.items() if scenario is not None}
    if len(found) > 1:
        raise ConfigError(
            f"{' and '.join(sorted(found))} say each where to set the offsets", fix="give one of them only"
        )
    return next(iter(found.values()), ToEarliest(named=False))


def spans_of(admin: AdminPort, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KeptOffsets]:
    """Return the bounds of some logs."""
    starts = admin.start_offsets(partitions)
    ends = admin.end_offsets(partitions, isolation="read_uncommitted")
    return {tp: KeptOffsets(starts[tp], ends[tp]) for tp in partitions}


def _epoch_ms(text: str) -> int | None:
    found = _DATETIME.fullmatch(text)
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(found["local"] + (found["zone"] or "Z"))
    except ValueError:
        return None
    return round(moment.timestamp()) * 1000 + int((found["millis"] or ".000")[1:])


def _at_time(logs: Logs, time_ms: int) -> dict[TopicPartition, int]:
    # Negative times have a meaning of their own in the protocol.
    found = logs.admin.offsets_for_times(dict.fromkeys(logs.spans, max(0, time_ms)))
    return {tp: found.get(tp, span.end) for tp, span in logs.spans.items()}


def _csv_line(where: str, line: str) -> tuple[TopicPartition, int]:
    columns = [column.strip() for column in line.split(",")]
    if len(columns) == _COLUMNS and columns[0]:
        partition, offset = columns[1:]
        if partition.isdecimal() and offset.removeprefix("-").isdecimal():
            return TopicPartition(columns[0], int(partition)), int(offset)
    raise ConfigError(
        f"{where}: {line!r} is not a line of a reset plan",
        fix="write topic,partition,offset, such as in,0,42",
    )


_WITH_VALUE: Mapping[str, Callable[[Any], Scenario]] = {
    "to-offset": lambda value: ToOffset(offset=_number("to-offset", value)),
    "to-datetime": lambda value: ToDatetime.parse(str(value)),
    "by-duration": lambda value: ByDuration.parse(str(value)),
    "from-file": lambda value: FromFile.read(Path(str(value))),
    "shift-by": lambda value: ShiftBy(offsets=_number("shift-by", value)),
}
_FLAGS: Mapping[str, Callable[[], Scenario]] = {"to-earliest": ToEarliest, "to-latest": ToLatest}
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no", "")


def scenario_of(options: Mapping[str, Any] | None) -> Scenario:
    """Return the scenario that options ask for; to the earliest offsets if they ask for none.

    :param options: at most one of ``to-offset``, ``to-datetime``, ``by-duration``, ``from-file``,
        ``shift-by`` with its value, ``to-earliest``, ``to-latest`` with true.
    :raises ConfigError: an option is unknown, has no such value, or there are several.
    """
    asked: dict[str, Scenario | None] = {}
    for name, value in (options or {}).items():
        option = name.removeprefix("--").replace("_", "-")
        if option in _WITH_VALUE:
            asked[f"--{option}"] = None if value is None else _WITH_VALUE[option](value)
        elif option in _FLAGS:
            asked[f"--{option}"] = _FLAGS[option]() if _truth(option, value) else None
        else:
            raise ConfigError(
                f"a reset has no option {name!r} that says where to set offsets",
                fix=f"use one of {', '.join((*_WITH_VALUE, *_FLAGS))}",
            )
    return one_scenario(asked)


def topics_of(given: Iterable[str] | str | None) -> tuple[str, ...]:
    """Return the topics in a text that separates them by commas, or in several."""
    texts = [given] if isinstance(given, str) else given or ()
    return tuple(name for text in texts for part in text.split(",") if (name := part.strip()))


def _number(option: str, value: Any) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise ConfigError(f"{option} is {value!r}, not a whole number", fix=f"set {option} to one") from None


def _truth(option: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise ConfigError(f"{option} is {value!r}", fix=f"set {option} to true, or leave it out")
    return text in _TRUE
