"""Reads what templates give, which is always text."""

from __future__ import annotations

from datetime import datetime, timedelta

import pendulum

from airflow_kstreams.streams.errors import ConfigError


def epoch_ms(value: str | datetime) -> int:
    """Return a time with zone as epoch milliseconds.

    :raises ConfigError: it is no time, or has no zone.
    """
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ConfigError(
            f"{value!r} is not a time with zone",
            fix='write it as "2026-01-01T00:00:00+00:00", or as a template: "{{ data_interval_end }}"',
        )
    return round(time.timestamp() * 1000)


def number(name: str, value: str | int, *, minimum: int) -> int:
    """Return a whole number.

    :raises ConfigError: it is none, or too small.
    """
    try:
        found = int(value)
    except ValueError:
        found = minimum - 1
    if found < minimum:
        raise ConfigError(
            f"{name}={value!r} is not a whole number of {minimum} or more",
            fix=f"give {name}={minimum} or more",
        )
    return found


def milliseconds(name: str, value: str | float | timedelta) -> int:
    """Return a span of time: ``timedelta``, seconds, or ISO 8601 text (``PT15M``).

    :raises ConfigError: it is none, or negative.
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
    except ValueError:
        seconds = None
    if seconds is None or seconds < 0:
        raise ConfigError(
            f"{name}={value!r} is not a span of time",
            fix=f'give {name}=timedelta(minutes=15), a number of seconds, or "PT15M"',
        )
    return round(seconds * 1000)
