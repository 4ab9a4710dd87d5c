"""The commands that expand an application, as messages name them."""

from __future__ import annotations


def expand_command(application_id: str, subtopology: int, processors: int) -> str:
    """Return the command that gives a subtopology more processors, or goes on with that.

    >>> expand_command("orders", 1, 6)  # doctest: +ELLIPSIS
    'airflow-kstreams expand processors ... --application-id orders --subtopology 1 --to 6'
    """
    return (
        f"airflow-kstreams expand processors --bootstrap-server <broker> --application-id {application_id} "
        f"--subtopology {subtopology} --to {processors}"
    )


def abort_command(application_id: str) -> str:
    """Return the command that gives up the expansions that are under way.

    >>> abort_command("orders")
    'airflow-kstreams expand abort --bootstrap-server <broker> --application-id orders'
    """
    return f"airflow-kstreams expand abort --bootstrap-server <broker> --application-id {application_id}"
