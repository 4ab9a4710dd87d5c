"""Sets the offsets of input topics by Kafka's own reset scenarios, and reads the options that name them.

An offset that a scenario asks for is moved into the log: below its first offset it becomes that one, at or
past its end it becomes the end, the high watermark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.number_texts import counted
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

    :param spans: first and last offset of the log of every partition to set.
    :param positions: partition -> the offset at which the next run would start, where that is known.
    :param now_ms: time now, epoch milliseconds.
    """

    spans: Mapping[TopicPartition, KeptOffsets]
    positions: Mapping[TopicPartition, int]
    admin: AdminPort
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A rule by which a reset sets the offsets of input topics.

    :param option: the scenario as options of a command line, empty for the default.
    :param targets: returns the offset that is asked for in each partition, whether the log holds it or not;
        raises ConfigError when the scenario gives none for a partition.
    """

    option: str
    targets: Callable[[Logs], dict[TopicPartition, int]] = field(repr=False)


def _first_offsets(logs: Logs) -> dict[TopicPartition, int]:
    return {tp: span.start for tp, span in logs.spans.items()}


def _end_offsets(logs: Logs) -> dict[TopicPartition, int]:
    return {tp: span.end for tp, span in logs.spans.items()}


#: Sets offsets to the first one of each log; the default does so, too.
TO_EARLIEST = Scenario(option="--to-earliest", targets=_first_offsets)
DEFAULT = Scenario(option="", targets=_first_offsets)
#: Sets offsets to the end of each log.
TO_LATEST = Scenario(option="--to-latest", targets=_end_offsets)


def to_offset(offset: int) -> Scenario:
    """Set the same offset in each partition."""
    return Scenario(option=f"--to-offset {offset}", targets=lambda logs: dict.fromkeys(logs.spans, offset))


def shift_by(offsets: int) -> Scenario:
    """Shift the offset at which the next run would start: forward, or backward when negative."""

    def targets(logs: Logs) -> dict[TopicPartition, int]:
        for tp in sorted(logs.spans):
            if tp not in logs.positions:
                raise ConfigError(
                    f"{tp} has no committed offset that could be shifted",
                    fix="use another scenario, such as --to-earliest",
                )
        return {tp: logs.positions[tp] + offsets for tp in logs.spans}

    return Scenario(option=f"--shift-by {offsets}", targets=targets)


def to_datetime(text: str) -> Scenario:
    """Set offsets to the first one dated at or after a time; to the end of the log where there is none.

    :param text: date and time in the form that :func:`epoch_ms` reads.
    """
    time_ms = epoch_ms(text)
    return Scenario(option=f"--to-datetime {text}", targets=lambda logs: _at_time(logs, time_ms))


def by_duration(text: str) -> Scenario:
    """Set offsets as :func:`to_datetime` does, to the time a duration ago.

    :param text: duration in the form that :func:`duration_ms` reads.
    """
    ago_ms = duration_ms(text)
    return Scenario(option=f"--by-duration {text}", targets=lambda logs: _at_time(logs, logs.now_ms - ago_ms))


def from_file(path: Path) -> Scenario:
    """Set the offsets that a file lists, one line ``topic,partition,offset`` for each partition.

    :raises ConfigError: the file cannot be read, or a line has another form.
    """
    lines = _lines(path)

    def targets(logs: Logs) -> dict[TopicPartition, int]:
        for tp, (number, _) in lines.items():
            if tp not in logs.spans:
                raise ConfigError(
                    f"{path}:{number}: {tp} is not a partition of the input topics to reset",
                    fix="remove the line, or name its topic by --input-topics",
                )
        missing = sorted(set(logs.spans) - set(lines))
        if missing:
            raise ConfigError(
                f"{path} says nothing of {missing[0]}"
                + (f" and {counted(len(missing) - 1, 'more partition')}" if missing[1:] else ""),
                fix="add a line topic,partition,offset for each partition of the input topics",
            )
        return {tp: offset for tp, (_, offset) in lines.items()}

    return Scenario(option=f"--from-file {path}", targets=targets)


def _lines(path: Path) -> dict[TopicPartition, tuple[int, int]]:
    """Return the number of each partition's line, and its offset."""
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
    return lines


def spans_of(admin: AdminPort, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KeptOffsets]:
    """Return the bounds of some logs."""
    starts = admin.start_offsets(partitions)
    ends = admin.end_offsets(partitions, isolation="read_uncommitted")
    return {tp: KeptOffsets(starts[tp], ends[tp]) for tp in partitions}


def epoch_ms(text: str) -> int:
    """Read ``YYYY-MM-DDThh:mm:ss.sss``, UTC unless a zone follows.

    :raises ConfigError: the text has another form.
    """
    if found := _DATETIME.fullmatch(text):
        with suppress(ValueError):
            moment = datetime.fromisoformat(found["local"] + (found["zone"] or "Z"))
            return round(moment.timestamp()) * 1000 + int((found["millis"] or ".000")[1:])
    raise ConfigError(
        f"--to-datetime {text!r} is not a date and time",
        fix="write YYYY-MM-DDThh:mm:ss.sss, UTC unless a zone follows, such as 2026-01-31T23:00:00.000+01:00",
    )


def duration_ms(text: str) -> int:
    """Read ``PnDTnHnMnS``.

    :raises ConfigError: the text has another form.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"--by-duration {text!r} is not a duration",
            fix="write PnDTnHnMnS, such as P7D or PT1H30M; the time is counted back from now",
        )
    seconds = sum(float(found[unit] or 0) * size for unit, size in _UNIT_SECONDS.items())
    return round(seconds * 1000)


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
    "to-offset": lambda value: to_offset(_number("to-offset", value)),
    "to-datetime": lambda value: to_datetime(str(value)),
    "by-duration": lambda value: by_duration(str(value)),
    "from-file": lambda value: from_file(Path(str(value))),
    "shift-by": lambda value: shift_by(_number("shift-by", value)),
}
_FLAGS: Mapping[str, Scenario] = {"to-earliest": TO_EARLIEST, "to-latest": TO_LATEST}
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no", "")


def scenario_of(options: Mapping[str, Any] | None) -> Scenario:
    """Return the scenario that options ask for; to the earliest offsets if they ask for none.

    :param options: at most one of ``to-offset``, ``to-datetime``, ``by-duration``, ``from-file``,
        ``shift-by`` with its value, ``to-earliest``, ``to-latest`` with true.
    :raises ConfigError: an option is unknown, has no such value, or there are several.
    """
    asked: dict[str, Scenario] = {}
    for name, value in (options or {}).items():
        option = name.removeprefix("--").replace("_", "-")
        if option in _WITH_VALUE:
            if value is not None:
                asked[f"--{option}"] = _WITH_VALUE[option](value)
        elif option in _FLAGS:
            if _truth(option, value):
                asked[f"--{option}"] = _FLAGS[option]
        else:
            raise ConfigError(
                f"a reset has no option {name!r} that says where to set offsets",
                fix=f"use one of {', '.join((*_WITH_VALUE, *_FLAGS))}",
            )
    if len(asked) > 1:
        raise ConfigError(
            f"{' and '.join(sorted(asked))} each say where to set the offsets", fix="give one of them only"
        )
    return next(iter(asked.values()), DEFAULT)


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
        raise ConfigError(
            f"{option} is {value!r}, expected true or false", fix=f"set {option} to true, or leave it out"
        )
    return text in _TRUE
