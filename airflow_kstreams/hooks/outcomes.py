"""Turns errors of this package into outcomes of an Airflow task; no other module does.

=========================================  ================================================================
error                                      outcome
=========================================  ================================================================
``is_retriable`` is false (settings,       ``AirflowFailException``: the task fails, its retries are not
topology, data loss, refused credentials)  spent on something they cannot change
``is_retriable`` is true (all others)      the error itself: the task fails and Airflow retries it as its
                                           ``retries`` say; the run's slice stays
=========================================  ================================================================

Either way the task's log has the error once, at ERROR: class and cause first, then the user's own frames,
last what to do, in lines of ``LOG_COLUMNS`` at most. The exception has the same text.

Airflow logs an exception by itself, and its viewer shows the text of one in a single line without an end,
above the frames of this package. So Airflow's entry gets the text in place of the exception
(:class:`_TextForException`). Where Airflow does not log by structlog, the entry shows the exception, which
has no chain.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import structlog

from airflow_kstreams.hooks.airflow_versions import AirflowFailException
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.printable import LOG_COLUMNS, breaking_lines, package_log

log = package_log(__name__)


def outcome_of(error: KStreamsError) -> Exception:
    """Return what an operator raises for an error, see the module's table."""
    error.broken_at(LOG_COLUMNS)
    return error if error.is_retriable else AirflowFailException(str(error))


class airflow_outcomes:
    """Raise errors of the block as their Airflow outcome, and break the lines that the block logs.

    The outcome has neither a cause nor the frames of the block: its text says all that a user can use.
    """

    def __init__(self) -> None:
        self._breaking = ExitStack()

    def __enter__(self) -> Self:
        self._breaking.enter_context(breaking_lines())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        self._breaking.close()
        if isinstance(error, KStreamsError):
            log.debug("The frames of the error that follows", exc_info=error)
            outcome = outcome_of(error)
            _TEXT.put_for(outcome)
            raise outcome.with_traceback(None) from None


class _TextForException:
    """A processor of structlog, by which Airflow writes the log of a task: an entry that would show the
    outcome as an exception has its text instead.
    """

    def __init__(self) -> None:
        self._outcome: BaseException | None = None

    def put_for(self, outcome: BaseException) -> None:
        """Let the outcome's entry have its text."""
        self._outcome = outcome
        processors = structlog.get_config()["processors"]
        # Loggers that are in use refer to this list; a new one would reach later loggers only.
        if isinstance(processors, list) and self not in processors:
            processors.insert(0, self)

    def __call__(
        self, logger: Any, method_name: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Put the text in the place of the exception."""
        given = event.get("exc_info")
        shown = given if isinstance(given, BaseException) else sys.exc_info()[1] if given else None
        if shown is not None and shown is self._outcome:
            del event["exc_info"]
            event["event"] = str(shown)
        return event


_TEXT = _TextForException()
