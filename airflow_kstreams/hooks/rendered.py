"""Reads the templated parameters of operators and sensors.

A template gives text. A DAG that renders native objects makes Python's value of each text, of a constant,
too: a number of ``20240301``, None, a tuple of ``1,2``. The result of another task may be anything. Each
parameter has a reader, which takes every form whose meaning is plain and refuses the others by name.

A parameter that is left out is empty text, not None (:func:`given`): Airflow renders neither, so None can
only come from a template that had no value. It is refused, lest a reset or a replay does more than asked.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pendulum
from jinja2 import Undefined

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.naming.topic_names import is_legal_topic

#: Returns the value of a parameter, given its name and what it is after rendering.
Reader = Callable[[str, Any], Any]

_KEEP_TEXT = "where a DAG renders native objects, quotes keep a template's text: \"'{{ params.NAME }}'\""
_WRITE_TIME = 'write it as "2026-01-01T00:00:00+00:00", or as a template: "{{ data_interval_end }}"'
_LEAVE_OUT = "a template that may have no value renders empty text: \"{{ params.NAME or '' }}\""


class Rendered:
    """An operator that reads its templated fields when it is executed."""

    readers: ClassVar[Mapping[str, Reader]] = {}

    def read_rendered(self) -> None:
        """Read every templated field.

        :raises ConfigError: one of them cannot be read.
        """
        done: dict[str, Any] = self.__dict__.setdefault("_read", {})
        for name, read in self.readers.items():
            value = getattr(self, name)
            if name not in done or value is not done[name]:
                _refuse_undefined(name, value)
                done[name] = read(name, value)
                setattr(self, name, done[name])


def given(value: Any) -> Any:
    """Return what a parameter is until it is read: empty text for None."""
    return "" if value is None else value


def text(name: str, value: Any) -> str:
    """Return a text that must be there.

    :raises ConfigError: it is empty, or no text.
    """
    found = optional_text(name, value)
    if not found:
        raise ConfigError(f"{name}={value!r} is empty", fix=f"give {name} a text that is not empty")
    return found


def optional_text(name: str, value: Any) -> str:
    """Return a text, which may be empty.

    :raises ConfigError: it is no text.
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is None or value == "None":
        raise ConfigError(f"{name}={value!r} is what a template without a value renders", fix=_LEAVE_OUT)
    if not isinstance(value, str):
        raise _unfit(name, value, "text", fix=f'give {name}="..."; {_KEEP_TEXT}')
    return value


def of_spark(name: str, value: Any) -> str | None:
    """Return a text of Spark's own operator, which is None by default; a list becomes text with commas.

    :raises ConfigError: it is no text, and no list of texts.
    """
    if isinstance(value, list | tuple):
        return ",".join(text(name, each) for each in value)
    return None if value is None else optional_text(name, value)


def number(minimum: int, *, optional: bool = False) -> Reader:
    """Return the reader of a whole number; of one that is left out it gives None.

    :param minimum: smallest number that is taken.
    """

    def read(name: str, value: Any) -> int | None:
        if optional and value == "":
            return None
        found: int | None = None
        if isinstance(value, int | str) or (isinstance(value, float) and value.is_integer()):
            with suppress(ValueError):
                found = int(value)
        if found is None or isinstance(value, bool) or found < minimum:
            fix = f"give {name}={minimum} or more{f'; {_LEAVE_OUT}' if optional else ''}"
            raise _unfit(name, value, f"a whole number of {minimum} or more", fix=fix)
        return found

    return read


def rate(name: str, value: Any) -> float | None:
    """Return a number above 0, None if it is left out.

    :raises ConfigError: it is none.
    """
    if value == "":
        return None
    found = 0.0
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with suppress(ValueError):
            found = float(value)
    if not 0 < found < math.inf:
        raise _unfit(name, value, "a number above 0", fix=f"give {name}=1000; {_LEAVE_OUT}")
    return found


def switch(name: str, value: Any) -> bool:
    """Return whether something is asked for; it is not if it is left out.

    :raises ConfigError: it is neither true nor false.
    """
    answer = {"": False, "0": False, "false": False, "1": True, "true": True}.get(str(value).lower())
    if answer is None or not isinstance(value, bool | int | str):
        raise _unfit(name, value, "true or false", fix=f"give {name}=True or {name}=False; {_LEAVE_OUT}")
    return answer


def topic_names(name: str, value: Any) -> tuple[str, ...]:
    """Return the names in a list, or in text that separates them by commas.

    :raises ConfigError: the value is neither, or Kafka does not allow such a name.
    """
    names: tuple[Any, ...] = (value,)
    if isinstance(value, str):
        names = tuple(part for each in value.split(",") if (part := each.strip()))
    elif isinstance(value, Iterable) and not isinstance(value, Mapping | bytes):
        names = tuple(value)
    names = tuple(str(each) if type(each) is int else each for each in names)
    for each in names:
        if not isinstance(each, str) or each == "None" or not is_legal_topic(each):
            raise _unfit(
                name,
                value,
                f"a list of topic names: {each!r} is not one",
                fix=f'give {name}=["orders", "customers"], or text: "orders, customers"; a template gives '
                f"text, so join its list: \"{{{{ names | join(',') }}}}\"; {_LEAVE_OUT}",
            )
    return names


def json_object(name: str, value: Any) -> Mapping[str, Any]:
    """Return an object, which a template renders as text unless the DAG renders native objects.

    :return: an empty one if it is left out.
    :raises ConfigError: it is neither an object nor its JSON.
    """
    found = value
    if isinstance(value, str):
        with suppress(ValueError):
            found = json.loads(value) if value.strip() else ""
    if found == "":
        return {}
    if isinstance(found, Mapping):
        return found
    raise ConfigError(
        f"{name} is neither an object of names and values nor its JSON text: {_shown(value)}",
        fix=f'give {name} as {{"name": "value"}}; a template renders text: use {{{{ ... | tojson }}}}, or '
        "render_template_as_native_obj=True in the DAG",
    )


def settings_object(name: str, value: Any) -> Mapping[str, Any]:
    """Return an object whose values are of settings.

    :raises ConfigError: it is none, or a template inside it had no value.
    """
    found = json_object(name, value)
    for key, each in found.items():
        if each == "None":
            optional_text(f"{name}[{key!r}]", each)
    return found


def texts_object(name: str, value: Any) -> Mapping[str, str]:
    """Return an object whose values are texts.

    :raises ConfigError: it is none, or one of its values is no text.
    """
    found = json_object(name, value)
    return {key: text(f"{name}[{key!r}]", each) for key, each in found.items()}


def spark_object(name: str, value: Any) -> Mapping[str, Any]:
    """Return an object of Spark's own operator: texts, numbers, true and false.

    :raises ConfigError: it is no object, or it has a value of another type.
    """
    found = json_object(name, given(value))
    for key, each in found.items():
        if not isinstance(each, int | float):
            optional_text(f"{name}[{key!r}]", each)
    return found


def texts_of_spark(name: str, value: Any) -> Mapping[str, str]:
    """Return an object of Spark's own operator, whose values are texts, which may be empty.

    :raises ConfigError: it is no object, or one of its values is no text.
    """
    found = json_object(name, given(value))
    return {key: optional_text(f"{name}[{key!r}]", each) for key, each in found.items()}


def moment(name: str, value: Any) -> datetime | None:
    """Return a time, None if it is left out.

    :raises ConfigError: it is no time.
    """
    if value == "" or isinstance(value, datetime):
        return value or None
    found = None
    if isinstance(value, int | str) and not isinstance(value, bool):
        with suppress(ValueError):
            # A day without dashes is a number where the DAG renders native objects.
            found = datetime.fromisoformat(str(value).strip())
    if found is None:
        raise _unfit(name, value, "a time", fix=_WRITE_TIME)
    return found


def moment_with_zone(name: str, value: Any) -> datetime | None:
    """Return a time with its zone, None if it is left out.

    :raises ConfigError: it is no time, or has no zone.
    """
    found = moment(name, value)
    if found is not None and found.tzinfo is None:
        raise _unfit(name, value, "a time with zone", fix=_WRITE_TIME)
    return found


def interval_ms(start: datetime, end: datetime) -> tuple[int, int]:
    """Return a data interval in epoch milliseconds."""
    return round(start.timestamp() * 1000), round(end.timestamp() * 1000)


def span(name: str, value: Any) -> timedelta | None:
    """Return a span of time: ``timedelta``, seconds, or ISO 8601 text (``PT15M``); None if it is left out.

    :raises ConfigError: the value is no span of time, or negative.
    """
    if value == "":
        return None
    found: timedelta | None = None
    with suppress(TypeError, ValueError, OverflowError):
        if isinstance(value, timedelta):
            found = value
        elif isinstance(value, str) and value.lstrip().upper().startswith("P"):
            parsed = pendulum.parse(value)
            found = parsed if isinstance(parsed, timedelta) else None
        elif not isinstance(value, bool):
            found = timedelta(seconds=float(value))
    if found is None or found < timedelta():
        fix = f'give {name}=timedelta(minutes=15), a number of seconds, or "PT15M"; {_LEAVE_OUT}'
        raise _unfit(name, value, "a span of time", fix=fix)
    return found


def commands(name: str, value: Any) -> list[str] | None:
    """Return the shell commands of a list, or the one that a text is.

    :raises ConfigError: one of them is no text.
    """
    if value is None or value == "":
        return None
    return [text(name, each) for each in (value if isinstance(value, list | tuple) else [value])]


def _refuse_undefined(name: str, value: Any) -> None:
    """Refuse a template's name that stands for nothing; in a DAG that renders native objects it stays."""
    if isinstance(value, Undefined):
        raise ConfigError(
            f"{name}={value!r}: its template uses a name that is not defined, {value._undefined_name!r}",
            fix="use names of Airflow's template reference: params, run_id, ds, data_interval_start, ...",
        )
    inner = value.items() if isinstance(value, dict) else ()
    for key, each in inner or (enumerate(value) if isinstance(value, list | tuple) else ()):
        _refuse_undefined(f"{name}[{key!r}]", each)


def _unfit(name: str, value: Any, expected: str, *, fix: str) -> ConfigError:
    """Describe a value that is not what its field takes.

    :param expected: what the field takes.
    """
    return ConfigError(f"{name}={_shown(value)} is not {expected}", fix=fix)


def _shown(value: Any) -> str:
    """Return a value as Python writes it, shortened."""
    return f"{value!r:.200}"
