"""Which names Kafka allows for topics, and how a name is shown."""

from __future__ import annotations

import re

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


#: What to do about a name that Kafka does not allow for a topic.
LEGAL_TOPIC = "use 1 to 249 letters, digits, dots, dashes and underscores"


def is_legal_topic(name: str) -> bool:
    """Say whether Kafka allows a name for a topic: 1 to 249 letters, digits, dots, dashes, underscores; no
    ``.``, ``..``.
    """
    return isinstance(name, str) and name not in {".", ".."} and _LEGAL.match(name) is not None


def printable(name: str) -> str:
    r"""Return a name as it is shown: whatever cannot be printed stands as Python would escape it.

    A node may have any name. One with a line feed, a control character or half a surrogate pair would break
    the text or the picture that names it.

    >>> print(printable("two\nlines"))
    two\nlines
    """
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in name
    )
