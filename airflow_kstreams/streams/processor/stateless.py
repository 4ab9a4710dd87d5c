"""What a processor cannot ask for if its calls may run beside those of other records."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_kstreams.streams.errors import TopologyError

#: What is asked for -> what is said of it, and what to do instead.
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
        "take the record's timestamp_ms, or have a processor above hand stream time on",
    ),
}


def refused_beside_others(where: str, name: str, of: str = "") -> TopologyError:
    """Return what is said to a processor that asks for it all the same.

    :param where: the processor, for the message.
    :param name: what it asks for.
    :param of: the name that it gives.
    """
    what, fix = REFUSED[name]
    return TopologyError(
        f"{where} {what}{f' {of!r}' if of else ''}, and its calls run beside those of other records: what "
        "they see and do of that would depend on time",
        fix=fix,
    )
