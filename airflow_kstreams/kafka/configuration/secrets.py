"""Keeps the values of secret settings out of texts.

Rule: a secret value becomes a :class:`Secret` where it is read. Its ``repr`` is ``***``, so neither the
``repr`` of an object around it nor a traceback that shows local variables contains the value; as text it is
the value, so that clients and JSON take it. Texts of the client library (errors and logs) pass
:func:`without_secrets` before they are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, SupportsIndex

_SECRET = re.compile(
    r"passw(or)?d|passphrase|secret|token(?!\.endpoint)|jaas|credential|user[._]?info|\.pem$|private[._]?key"
    r"|access[._]?key|api[._]?key|authorization|keystore\.key$"
    r"|sasl\.oauthbearer\.(config|extensions)"
    r"|^(schema\.registry\.)?proxy$",  # the proxy's URL may hold a password
)
#: Text in place of a secret.
REDACTED = "***"


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


def is_secret(name: str) -> bool:
    """Whether the value of a setting must never be shown."""
    return _SECRET.search(name.lower()) is not None


def sealed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with every secret text as a :class:`Secret`."""
    return {
        name: Secret(value) if isinstance(value, str) and is_secret(name) else value
        for name, value in config.items()
    }


def redact(config: Mapping[str, object]) -> dict[str, str]:
    """Return the settings as text with every secret value replaced, for logs and reprs."""
    return {name: REDACTED if is_secret(name) else str(value) for name, value in config.items()}


def without_secrets(text: str, config: Mapping[str, object]) -> str:
    """Return a text with the secret values of a configuration replaced."""
    for name, value in config.items():
        if value and is_secret(name):
            text = text.replace(str(value), REDACTED)
    return text
