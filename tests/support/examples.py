"""Hypothesis draws half of the examples in ``dev/test``, and all in ``dev/prove``, which runs each such test.

A test says the whole number, ``@settings(max_examples=examples(300))``, or has Hypothesis's 100.
"""

from __future__ import annotations

from hypothesis import settings

_WHOLE = 100


def draw_all(*, whole: bool) -> None:
    """Choose between all examples and half of them; for tests that are imported from now on."""
    name = "whole" if whole else "half"
    # An example that takes longer on a busy machine is no failure: the suites judge nothing by the clock.
    settings.register_profile(name, deadline=None, max_examples=_WHOLE if whole else _WHOLE // 2)
    settings.load_profile(name)


def examples(whole: int) -> int:
    """Return how many of so many examples are drawn now."""
    return whole * settings().max_examples // _WHOLE
