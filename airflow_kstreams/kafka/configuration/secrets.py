"""Says which of the client's settings are secret, and keeps their values out of texts.

Rule: a secret value becomes a :class:`Secret` where it is read. Texts of the client libraries, and of the
servers that they talk to, pass :func:`without_secrets` before they are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow_kstreams.streams.secret_texts import REDACTED, Secret, secret_texts, shown_url

_SECRET = re.compile(
    r"passw(or)?d|passphrase|secret|token(?!\.endpoint)|jaas|credential|user[._]?info|\.pem$|private[._]?key"
    r"|access[._]?key|api[._]?key|authorization|keystore\.key$"
    r"|sasl\.oauthbearer\.(config|extensions)|endpoint\.query$"
    r"|^(schema\.registry\.)?proxy$",  # the proxy's URL may hold a password
)


def is_secret(name: str, value: object = "") -> bool:
    """Return True if the value of a setting must never be shown as it is.

    :param value: the setting's; a URL that holds a user, a password or a query is secret under any name.
    """
    return _SECRET.search(name.lower()) is not None or shown_url(str(value)) != str(value)


def sealed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with every secret text as a :class:`Secret`."""
    return {
        name: Secret(value) if isinstance(value, str) and is_secret(name, value) else value
        for name, value in config.items()
    }


def redact(config: Mapping[str, object]) -> dict[str, str]:
    """Return the settings as text with every secret value replaced, for logs and reprs."""
    return {name: REDACTED if is_secret(name) else shown_url(str(value)) for name, value in config.items()}


def secret_values(config: Mapping[str, object]) -> list[str]:
    """Return the texts of a configuration that nothing may show, the longest first: the secret values, their
    parts, and the forms in which a server repeats them.
    """
    return secret_texts(config, is_secret)


def without_secrets(text: str, config: Mapping[str, object]) -> str:
    """Return a text with the secret values of a configuration replaced."""
    for secret in secret_values(config):
        text = text.replace(secret, REDACTED)
    return text
