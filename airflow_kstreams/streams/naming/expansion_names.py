"""Names of an expansion to more processors: its commands, as messages name them, and what its catch-up is
called in Kafka.
"""

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


def catch_up_group(application_id: str) -> str:
    """Return the consumer group whose offsets say how far state is copied."""
    return f"{application_id}-catchup"


def catch_up_id(application_id: str, subtopology: int, source: int) -> str:
    """Return the transactional id under which the state of one source is copied."""
    return f"{catch_up_group(application_id)}-{subtopology}_{source}"
