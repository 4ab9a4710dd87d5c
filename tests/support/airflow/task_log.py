"""Texts of a task's log, whose lines are broken for people to read."""

from __future__ import annotations

import re

_BREAK = re.compile(r"(?: \\)?\n {2,}(?=\S)")


def unbroken(text: str) -> str:
    """Return a text with its broken lines joined."""
    return _BREAK.sub(" ", text)


def said(pattern: str) -> str:
    """Return a regular expression for a text of words, wherever its lines are broken."""
    return pattern.replace(" ", r"(?: \\)?\s+")
