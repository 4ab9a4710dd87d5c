"""Reads the options of Kafka's own application reset tool that say where a reset sets offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from airflow_kstreams.batch.reset.scenario import (
    ByDuration,
    FromFile,
    Scenario,
    ShiftBy,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
    one_scenario,
)
from airflow_kstreams.streams.errors import ConfigError

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
