"""Writes numbers of things as people read them."""

from __future__ import annotations


def counted(number: int | None, noun: str) -> str:
    """Return a number of things in words; ``unknown`` where it is None.

    >>> counted(1, "record"), counted(2_000, "record"), counted(0, "entry"), counted(None, "record")
    ('1 record', '2,000 records', '0 entries', 'unknown records')

    :param noun: the thing, in the singular.
    """
    if number == 1:
        return f"1 {noun}"
    many = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"unknown {many}" if number is None else f"{number:,} {many}"
