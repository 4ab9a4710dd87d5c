"""What a table hands to the tables below it: a key's new value together with its old one.

Stands at the bottom, since operators make it and the serde of repartition topics writes it.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Change(NamedTuple):
    """A key's new value and its old one; None where the key is not in the table.

    :param new: the value that the key has from now on.
    :param old: the value that was handed over for the key before.
    :param old_ms: timestamp of the old value's entry; -1 if there is none, or nothing asks for it.
    """

    new: Any
    old: Any
    old_ms: int = -1


class LateChange(Change):
    """A change of a versioned table that is not its key's latest: ``new`` is valid until a version that the
    table has already, so ``old`` stays the key's value.
    """

    __slots__ = ()
