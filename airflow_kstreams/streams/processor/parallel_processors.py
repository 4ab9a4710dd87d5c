"""Refuses requests of a processor whose calls may run beside those of other records."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_kstreams.streams.errors import TopologyError

#: Requested name -> the error's text and remedy.
REFUSED: Mapping[str, tuple[str, str]] = {
    "commit": (
        "asks for a commit",
        "ask for it in a processor above or below, with process(...)",
    ),
    "schedule": (
        "schedules a punctuation",
        "schedule it in a processor above, below or beside, with process(...)",
    ),
    "state_store": (
        "asks for a store",
        "keep state in a processor above or below, with process(definition, store)",
    ),
    "stream_time_ms": (
        "asks for stream time",
        "take the record's timestamp_ms, or let a processor above forward stream time",
    ),
}


def refused_beside_others(where: str, name: str, of: str = "") -> TopologyError:
    """Return the error of a processor that makes such a request.

    :param where: the processor, for the message.
    :param name: the method or attribute it asks for.
    :param of: its argument.
    """
    what, fix = REFUSED[name]
    return TopologyError(
        f"{where} {what}{f' {of!r}' if of else ''}, and its calls run beside those of other records: their "
        "results would depend on time",
        fix=fix,
    )
