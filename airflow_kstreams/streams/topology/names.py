"""Which names Kafka allows for topics."""

from __future__ import annotations

import re

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


def is_legal_topic(name: str) -> bool:
    """Say whether Kafka allows a name for a topic: 1 to 249 letters, digits, dots, dashes, underscores; no
    ``.``, ``..``.
    """
    return isinstance(name, str) and name not in {".", ".."} and _LEGAL.match(name) is not None
