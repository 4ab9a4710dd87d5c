"""Reads client settings from a file: properties as Kafka's own tools take them, or JSON.

The names are librdkafka's, most of which are Java's too. Where Java has a setting that librdkafka has under
another name, the file is understood or refused with the name to use. Values never appear in messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from airflow_kstreams.streams.errors import ConfigError

#: A login by name and password, the only JAAS configuration that has a counterpart.
_LOGIN = re.compile(r"\s*\S*\.(Plain|Scram)LoginModule\s+required\b(?P<options>.*);\s*\Z", re.DOTALL)
_OPTION = re.compile(
    r"""\b(?P<name>username|password)\s*=\s*("(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s;"]+))"""
)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
#: Java's settings that librdkafka lacks, and what to write instead.
_JAVA_ONLY: Mapping[str, str] = {
    "ssl.truststore.location": "export its certificates as PEM and name that file in ssl.ca.location",
    "ssl.truststore.password": "remove it; a PEM file named in ssl.ca.location needs none",
    "ssl.truststore.type": "remove it; ssl.ca.location names a PEM file",
    "ssl.truststore.certificates": "name it ssl.ca.pem",
    "ssl.keystore.certificate.chain": "name it ssl.certificate.pem",
    "ssl.keystore.key": "name it ssl.key.pem",
    "ssl.keystore.type": "remove it; ssl.keystore.location names a PKCS#12 file",
}


def read_client_config(path: str | Path) -> dict[str, str]:
    """Read client settings.

    :param path: of a properties file (``name=value`` a line) or of a JSON object.
    :return: librdkafka's names and their values; not yet checked, see ``check_client_settings``.
    :raises ConfigError: the file cannot be read or understood; the line is named.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the client configuration {str(path)!r} cannot be read: {_reason(error)}",
            fix="name a readable properties file, as for the --command-config of Kafka's own tools",
        ) from None
    if text.lstrip().startswith("{"):
        return _json(text, path)
    return _translated(dict(_properties(text, path)), path)


def _json(text: str, path: str | Path) -> dict[str, str]:
    try:
        content = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise ConfigError(
            f"the client configuration {path}:{line} is not valid JSON",
            fix="write one JSON object of setting names and values",
        ) from None
    return {str(name): _text(value) for name, value in content.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _properties(text: str, path: str | Path) -> Iterator[tuple[str, str]]:
    """Yield names and values of a Java properties file."""
    for number, line in _logical_lines(text):
        name, separator, value = _split(line)
        if not separator:
            raise ConfigError(
                f"the client configuration {path}:{number} has no value",
                fix="write name=value, one setting a line",
            )
        yield _unescaped(name), _unescaped(value)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines that hold something, continued ones joined, with the number they begin at."""
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
    """Cut a line at its first ``=``, ``:`` or blank that is not escaped."""
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
        config |= _login(jaas, path)
    for name in config:
        if name in _JAVA_ONLY:
            raise ConfigError(
                f"the client configuration {str(path)!r} has {name!r}, which only Java's clients know",
                fix=_JAVA_ONLY[name],
            )
    return config


def _login(jaas: str, path: str | Path) -> dict[str, str]:
    match = _LOGIN.match(jaas)
    options = {
        option["name"]: re.sub(r"\\(.)", r"\1", option["quoted"])
        if option["bare"] is None
        else option["bare"]
        for option in _OPTION.finditer(match["options"] if match else "")
    }
    if options.keys() != {"username", "password"}:
        raise ConfigError(
            f"the client configuration {str(path)!r} has a 'sasl.jaas.config' that is no plain login by name "
            "and password",
            fix="say it by librdkafka's names, e.g. sasl.username and sasl.password",
        )
    return {f"sasl.{name}": value for name, value in options.items()}


def _reason(error: Exception) -> str:
    return (error.strerror or "") if isinstance(error, OSError) else "it is not text in UTF-8"
