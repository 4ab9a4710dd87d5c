"""Keeps secret texts out of what is shown.

Rule: a secret becomes a :class:`Secret` where it is read. Its ``repr`` is ``***``, so neither the ``repr`` of
an object around it nor a traceback that shows local variables contains the value; as text it is the value, so
that clients and JSON take it.

A user name, a password and a query inside a URL are secret whatever the setting is. A server may repeat a
secret in another form: in Base64, as an ``Authorization`` header holds it, or quoted for a URL.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, SupportsIndex
from urllib.parse import quote, quote_plus, unquote

#: Text in place of a secret.
REDACTED = "***"
#: Between two URLs of one setting.
_NEXT_URL = re.compile(r",\s*(?=[A-Za-z][A-Za-z0-9+.-]*://)")
#: A part of a secret, or a form of it, is looked for if it is at least so long: shorter ones are in any text.
_SHORTEST_PART = 4


class Secret(str):
    """Text that no ``repr`` shows."""

    __slots__ = ()

    def __repr__(self) -> str:
        return REDACTED

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        # Code that shortens long texts before it shows them still gets a secret.
        return Secret(super().__getitem__(key))

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (str.__str__(self),)


def shown_url(text: str) -> str:
    """Return a setting's value with ``***`` for users, passwords and queries of the URLs in it.

    >>> shown_url("https://alice:canary@registry:8081/path?key=1, http://other")
    'https://***@registry:8081/path?***,http://other'
    """
    parts = [_url(part) for part in _NEXT_URL.split(text)] if "://" in text else []
    if not any(part.user or part.query for part in parts):
        return text
    return ",".join(part.shown for part in parts)


def secret_texts(config: Mapping[str, object], is_secret: Callable[[str], bool]) -> list[str]:
    """Return the texts of a configuration that nothing may show, the longest first: the secret values, their
    parts, and the forms in which a server repeats them.

    :param config: settings, name -> value.
    :param is_secret: whether the value of a setting of this name is secret, apart from URLs in it.
    """
    found: set[str] = set()
    for name, value in config.items():
        text = str.__str__(value) if isinstance(value, str) else str(value)
        if not text:
            continue
        if is_secret(name):
            found.add(text)
            found.update(_long(text.split(":", 1)[1:]))
        for part in map(_url, _NEXT_URL.split(text) if "://" in text else []):
            found.update(whole for whole in (part.user, part.query) if whole)
            found.update(_long([*part.user.split(":", 1), *re.split("[&=;]", part.query)]))
    for text in list(found):
        found.update(_forms(text))
    return sorted(found, key=lambda text: (-len(text), text))


class _Url(NamedTuple):
    """The secret parts of one URL, and what may be shown of it."""

    user: str
    query: str
    shown: str


def _url(text: str) -> _Url:
    """Take a URL apart, however malformed it is."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return _Url("", "", text)
    # A password may hold a slash or a question mark that should have been quoted.
    user, at, place = rest.rpartition("@")
    place, asked, query = place.partition("?")
    shown = f"{scheme}://{REDACTED if at else ''}{at}{place}{asked}{REDACTED if asked else ''}"
    return _Url(user, query, shown)


def _long(parts: list[str]) -> Iterator[str]:
    return (part for part in parts if len(part) >= _SHORTEST_PART)


def _forms(secret: str) -> Iterator[str]:
    """Return other forms of a secret: quoted, as JSON writes it, in Base64 alone and within other text."""
    yield from _long([quote(secret), quote(secret, safe=""), quote_plus(secret), unquote(secret)])
    yield from _long([json.dumps(secret)[1:-1]])
    if len(secret) < _SHORTEST_PART:
        return
    for data in {secret.encode(errors="replace"), unquote(secret).encode(errors="replace")}:
        for before in range(3):
            text = base64.b64encode(bytes(before) + data).decode()
            # The characters at both ends depend on what stands beside the secret.
            core = text[(0, 2, 3)[before] : len(text) - (0, 3, 2)[(before + len(data)) % 3]]
            for form in (core, *([text] if before == 0 else [])):
                yield from _long([form, form.translate(str.maketrans("+/", "-_"))])
