"""Turns errors of this package into outcomes of an Airflow task; no other module does.

=========================================  ================================================================
error                                      outcome
=========================================  ================================================================
``is_retriable`` is false (settings,       ``AirflowFailException``: the task fails, its retries are not
topology, data loss, refused credentials)  spent on something they cannot change
``is_retriable`` is true (all others)      the error itself: the task fails and Airflow retries it as its
                                           ``retries`` say; the run's slice stays
=========================================  ================================================================

Either way the text is one line of cause and one of what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_kstreams.hooks.airflow_versions import AirflowFailException
from airflow_kstreams.streams.errors import KStreamsError


def outcome_of(error: KStreamsError) -> Exception:
    """Return what an operator raises for an error, see the module's table."""
    return error if error.is_retriable else AirflowFailException(str(error))


@contextmanager
def airflow_outcomes() -> Iterator[None]:
    """Raise errors of the block as their Airflow outcome."""
    try:
        yield
    except KStreamsError as error:
        outcome = outcome_of(error)
        if outcome is error:
            raise
        raise outcome from error
