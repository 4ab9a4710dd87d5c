"""Reads client settings from a file: properties as Kafka's own tools take them, or JSON.

Errors are raised where no local variable holds a plain secret.

The names are librdkafka's, most of which are Java's too. A setting with another name in Java is translated,
or refused with the name to use. Values never appear in messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from airflow_kstreams.kafka.configuration.known_settings import JAVA_SETTINGS
from airflow_kstreams.kafka.configuration.secrets import sealed
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.secret_texts import Secret

#: A login by name and password, the only JAAS configuration that has a counterpart.
_LOGIN = re.compile(r"\s*\S*\.(Plain|Scram)LoginModule\s+required\b(?P<options>.*);\s*\Z", re.DOTALL)
_OPTION = re.compile(
    r"""\b(?P<name>username|password)\s*=\s*("(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s;"]+))"""
)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
#: A name, up to the first sign that separates, and what separates; blanks are those of Java.
_SPLIT = re.compile(
    r"(?P<name>(?:\\.|[^\\=: \t\f])*+)(?P<separator>[ \t\f]*[=:][ \t\f]*|[ \t\f]+|\Z)(?P<value>.*)\Z",
    re.DOTALL,
)
_LINE_END = re.compile(r"\r\n|\r|\n")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_client_config(path: str | Path) -> dict[str, str]:
    """Read client settings.

    :param path: a properties file (``name=value`` a line) or a file with a JSON object.
    :return: librdkafka's names and their values; not yet checked, see ``check_client_settings``.
    :raises ConfigError: the file cannot be read or understood; the line is named.
    """
    try:
        text = Secret(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the client configuration {str(path)!r} cannot be read: {_reason(error)}",
            fix="name a readable properties file, as for the --command-config of Kafka's own tools",
        ) from None
    if text.lstrip().startswith("{"):
        return _json(text, path)
    properties, fault = _properties(text)
    if fault is not None:
        raise ConfigError(
            f"the client configuration {path}:{fault.line} {fault.what}",
            fix="write name=value, one setting a line, a backslash as two, and an escaped character as \\u "
            "and four digits",
        )
    return _translated(properties, path)


def _json(text: str, path: str | Path) -> dict[str, str]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise ConfigError(
            f"the client configuration {path}:{line} is not valid JSON",
            fix="write one JSON object of setting names and values",
        ) from None
    return sealed({str(name): _text(value) for name, value in content.items()})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Fault(NamedTuple):
    """The first fault of a properties file."""

    line: int
    what: str


def _properties(text: str) -> tuple[dict[str, str], _Fault | None]:
    """Return names and values of a properties file as ``java.util.Properties`` reads them, in UTF-8, and the
    first fault.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        name, separator, value = _split(line)
        if not separator:
            return {}, _Fault(number, "has no value")
        try:
            properties[_unescaped(name)] = _unescaped(value)
        except UnicodeError:
            return {}, _Fault(number, "has an escape \\u that is no character")
    return sealed(properties), None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with content, continued ones joined, with the number of their first line. A line ends at a
    line feed, a carriage return, or both.
    """
    pending = ""
    begun = 0
    for number, raw in enumerate(_LINE_END.split(text), start=1):
        line = raw.lstrip(" \t\f")
        if not pending:
            if not line or line[0] in "#!":
                continue
            begun = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield begun, pending + line
        pending = ""
    if pending:
        yield begun, pending


def _split(line: str) -> tuple[str, str, str]:
    """Split a line at its first ``=``, ``:`` or blank that is not escaped."""
    match = _SPLIT.match(line)
    return (line, "", "") if match is None else (match["name"], match["separator"], match["value"])


def _unescaped(text: str) -> str:
    r"""Return a name or a value without escapes.

    :raises UnicodeError: the digits behind a ``\u`` are no character.
    """

    def meant(match: re.Match[str]) -> str:
        sign = match[1]
        if sign == "u":
            raise UnicodeError
        return chr(int(sign[1:], 16)) if len(sign) == 5 else _CONTROLS.get(sign, sign)

    # Java writes a character beyond 16 bits as two.
    return _ESCAPED.sub(meant, text).encode("utf-16", "surrogatepass").decode("utf-16")


def _translated(properties: Mapping[str, str], path: str | Path) -> dict[str, str]:
    """Return the settings by librdkafka's names."""
    config = dict(properties)
    jaas = config.pop("sasl.jaas.config", None)
    if jaas is not None:
        login = _login(jaas)
        if login is None:
            raise ConfigError(
                f"the client configuration {str(path)!r} has a 'sasl.jaas.config' that is no plain login by "
                "name and password",
                fix="say it by librdkafka's names, e.g. sasl.username and sasl.password",
            )
        config |= login
    for name in config:
        if name in JAVA_SETTINGS:
            raise ConfigError(
                f"the client configuration {str(path)!r} has {name!r}, which only Java's clients know",
                fix=JAVA_SETTINGS[name],
            )
    return config


def _login(jaas: str) -> dict[str, str] | None:
    match = _LOGIN.match(jaas)
    options = {
        option["name"]: re.sub(r"\\(.)", r"\1", option["quoted"])
        if option["bare"] is None
        else option["bare"]
        for option in _OPTION.finditer(match["options"] if match else "")
    }
    if options.keys() != {"username", "password"}:
        return None
    return sealed({f"sasl.{name}": value for name, value in options.items()})


def _reason(error: Exception) -> str:
    return (error.strerror or "") if isinstance(error, OSError) else "it is not text in UTF-8"
