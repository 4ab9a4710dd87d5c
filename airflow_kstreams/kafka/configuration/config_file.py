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

from airflow_kstreams.kafka.configuration.known_settings import JAVA_SETTINGS
from airflow_kstreams.kafka.configuration.secrets import Secret, sealed
from airflow_kstreams.streams.errors import ConfigError

#: A login by name and password, the only JAAS configuration that has a counterpart.
_LOGIN = re.compile(r"\s*\S*\.(Plain|Scram)LoginModule\s+required\b(?P<options>.*);\s*\Z", re.DOTALL)
_OPTION = re.compile(
    r"""\b(?P<name>username|password)\s*=\s*("(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s;"]+))"""
)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
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
    properties, faulty_line = _properties(text)
    if faulty_line is not None:
        raise ConfigError(
            f"the client configuration {path}:{faulty_line} has no value",
            fix="write name=value, one setting a line",
        )
    return _translated(properties, path)


def _json(text: str, path: str | Path) -> dict[str, str]:
    try:
        content = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise ConfigError(
            f"the client configuration {path}:{line} is not valid JSON",
            fix="write one JSON object of setting names and values",
        ) from None
    return sealed({str(name): _text(value) for name, value in content.items()})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _properties(text: str) -> tuple[dict[str, str], int | None]:
    """Return names and values of a Java properties file, and the number of the first line without a value."""
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        name, separator, value = _split(line)
        if not separator:
            return {}, number
        properties[_unescaped(name)] = _unescaped(value)
    return sealed(properties), None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with content, continued ones joined, with the number of their first line."""
    pending = ""
    begun = 0
    for number, raw in enumerate(text.splitlines(), start=1):
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
    match = re.match(
        r"(?P<name>(?:\\.|[^\\=:\s])*)(?P<separator>\s*[=:]\s*|\s+|\Z)(?P<value>.*)\Z", line, re.DOTALL
    )
    if match is None:
        return line, "", ""
    return match["name"], match["separator"], match["value"].rstrip()


def _unescaped(text: str) -> str:
    def meant(match: re.Match[str]) -> str:
        sign = match[1]
        return chr(int(sign[1:], 16)) if len(sign) == 5 else _CONTROLS.get(sign, sign)

    return _ESCAPED.sub(meant, text)


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
