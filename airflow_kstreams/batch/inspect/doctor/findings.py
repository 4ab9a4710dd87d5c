"""Defines the findings that make up a diagnosis."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_kstreams.batch.protocol.topic_settings import alter_command
from airflow_kstreams.streams.errors import KafkaClientError

_NAMED = 4


class Level(enum.Enum):
    """The severity of a finding.

    An error breaks the promise, or the next run; a warning may, some day; ``OK`` is what was looked at and
    is as it should be.
    """

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    :param check: its name.
    :param text: what was found, and what it means unless that is well.
    :param fix: what to do; empty when there is nothing to do.
    """

    level: Level
    check: str
    text: str
    fix: str = ""


def ok(check: str, text: str) -> Finding:
    """Build the finding of a check that found all well."""
    return Finding(level=Level.OK, check=check, text=text)


def warning(check: str, text: str, fix: str) -> Finding:
    """Build a finding that an operator should look at."""
    return Finding(level=Level.WARNING, check=check, text=text, fix=fix)


def error(check: str, text: str, fix: str) -> Finding:
    """Build a finding that must be mended."""
    return Finding(level=Level.ERROR, check=check, text=text, fix=fix)


def not_permitted(what: str, refused: KafkaClientError) -> Finding:
    """Build the finding of a check that this user may not make.

    :param what: cannot be looked at.
    :raises KafkaClientError: asking again may help.
    """
    if refused.is_retriable:
        raise refused
    return warning("permissions", f"{what} cannot be looked at: {refused.cause}", refused.fix)


def names(topics: Iterable[str]) -> str:
    """Return the first few names, and how many more there are."""
    listed = sorted(topics)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return f"{', '.join(listed[:_NAMED])}{more}"


def number(configs: Mapping[str, str], name: str) -> int | None:
    """Return a setting as a number, None if the broker does not say."""
    try:
        return int(configs[name])
    except (KeyError, ValueError):
        return None


def duration(milliseconds: float) -> str:
    """Return a time in the unit that suits it."""
    for unit, size in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("s", 1_000)):
        if milliseconds >= 2 * size or unit == "s":
            return f"{milliseconds / size:.4g} {unit}"
    return f"{milliseconds} ms"


def set_topic(topic: str, **configs: str) -> str:
    """Return the command that changes a topic's settings.

    :param configs: dots as underscores.
    """
    return alter_command(topic, {name.replace("_", "."): value for name, value in configs.items()})
