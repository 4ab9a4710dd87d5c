"""Hypothesis draws a quarter of the examples in ``dev/test``, a tenth of them in ``dev/test --quick``, and
all in ``dev/prove``, which runs each such test. ``dev/prove`` draws others each time; the first two do not,
so that nothing but a change decides whether they pass.

A test says the whole number, ``@settings(max_examples=examples(300))``, or has Hypothesis's 100.
"""

from __future__ import annotations

from typing import Literal

from hypothesis import Phase, settings

_WHOLE = 100
#: Of so many examples, how many are drawn.
_DRAWN = {"whole": _WHOLE, "quarter": _WHOLE // 4, "tenth": _WHOLE // 10}


def draw(share: Literal["whole", "quarter", "tenth"], *, shrinking: bool = True) -> None:
    """Choose how many of the examples are drawn; for tests that are imported from now on.

    :param shrinking: whether a smaller example is sought when one fails, which can take minutes.
    """
    # An example that takes longer on a busy machine is no failure: the suites judge nothing by the clock.
    others_each_time = share == "whole"
    settings.register_profile(
        share,
        deadline=None,
        max_examples=_DRAWN[share],
        derandomize=not others_each_time,
        phases=tuple(Phase) if shrinking else (Phase.explicit, Phase.reuse, Phase.generate),
    )
    settings.load_profile(share)


def examples(whole: int) -> int:
    """Return how many of so many examples are drawn now."""
    return whole * settings().max_examples // _WHOLE
