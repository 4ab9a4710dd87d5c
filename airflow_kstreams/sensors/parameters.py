"""Reads rendered parameters, which are text unless the DAG renders native objects."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta

import pendulum

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.naming.topic_names import is_legal_topic


def epoch_ms(name: str, value: str | datetime) -> int:
    """Return a time with zone as epoch milliseconds.

    :raises ConfigError: the value is no time, or has no zone.
    """
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        time = None
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise ConfigError(
            f"{name}={value!r} is not a time with zone",
            fix='write it as "2026-01-01T00:00:00+00:00", or as a template: "{{ data_interval_end }}"',
        )
    return round(time.timestamp() * 1000)


def number(name: str, value: object, *, minimum: int) -> int:
    """Return a whole number.

    :raises ConfigError: the value is no whole number, or too small.
    """
    found: int | None = None
    if isinstance(value, int | str) or (isinstance(value, float) and value.is_integer()):
        with suppress(ValueError):
            found = int(value)
    if found is None or found < minimum:
        raise ConfigError(
            f"{name}={value!r} is not a whole number of {minimum} or more",
            fix=f"give {name}={minimum} or more",
        )
    return found


def topic_names(name: str, value: object) -> tuple[str, ...]:
    """Return the names in a list, or in text that separates them by commas.

    :raises ConfigError: the value is neither, or Kafka does not allow such a name.
    """
    names: tuple[object, ...] = ()
    wrong: list[object] = []
    if isinstance(value, str):
        names = tuple(part for text in value.split(",") if (part := text.strip()))
    elif isinstance(value, Iterable):
        names = tuple(value)
    elif value is not None:
        wrong.append(value)
    legal = tuple(each for each in names if isinstance(each, str) and is_legal_topic(each))
    wrong += [each for each in names if each not in legal]
    if wrong:
        raise ConfigError(
            f"{name}={value!r} is not a list of topic names: {wrong[0]!r} is none",
            fix=f'give {name}=["orders", "customers"], or text: "orders, customers"; a template gives text, '
            "so join its list: \"{{ names | join(',') }}\"",
        )
    return legal


def milliseconds(name: str, value: str | float | timedelta) -> int:
    """Return a span of time: ``timedelta``, seconds, or ISO 8601 text (``PT15M``).

    :raises ConfigError: the value is no span of time, or negative.
    """
    seconds: float | None
    try:
        if isinstance(value, timedelta):
            seconds = value.total_seconds()
        elif isinstance(value, str) and value.lstrip().upper().startswith("P"):
            parsed = pendulum.parse(value)
            seconds = parsed.total_seconds() if isinstance(parsed, timedelta) else None
        else:
            seconds = float(value)
    except (TypeError, ValueError):
        seconds = None
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        raise ConfigError(
            f"{name}={value!r} is not a span of time",
            fix=f'give {name}=timedelta(minutes=15), a number of seconds, or "PT15M"',
        )
    return round(seconds * 1000)
