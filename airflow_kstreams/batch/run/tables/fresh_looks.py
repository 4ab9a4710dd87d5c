"""Acts on a table on condition of a look, and looks again where others have changed the table in between.

For what may be done again at once: begin's preparations, acceptance, expiry, marks. A run's commit waits
between its looks (:func:`airflow_kstreams.batch.run.tables.landing.looking_again`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from airflow_kstreams.streams.errors import TableMovedError, TableUnavailableError

#: Looks at a table that others change at the same time.
_LOOKS = 5
_Result = TypeVar("_Result")


def on_fresh_look(table: str, act: Callable[[], _Result], *, fix: str) -> _Result:
    """Look at a table and act on that look, again where others were faster.

    :param table: name of the table's sink, for messages.
    :param act: looks, acts on condition of the look, and returns what came of it.
    :param fix: what to do where others were faster each time.
    :raises TableUnavailableError: they were.
    """
    said = ""
    for _ in range(_LOOKS):
        try:
            return act()
        except TableMovedError as error:
            said = error.cause
    raise TableUnavailableError(
        f"table {table!r} was changed by others at each of {_LOOKS} looks; the last one found: {said}",
        fix=fix,
    )
