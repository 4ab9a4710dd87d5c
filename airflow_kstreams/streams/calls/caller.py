"""The port through which a task has its calls run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from airflow_kstreams.streams.calls.call import AsyncNode, Call
from airflow_kstreams.streams.figures.call_figures import ThreadState


class Caller(Protocol):
    """Runs the calls of one task. All methods are for the task's own thread."""

    @property
    def patience_seconds(self) -> float:
        """For how long the task may wait for a call before it looks after something else."""
        ...

    def open(self) -> None:
        """Start what runs the calls, and open the nodes' resources.

        :raises Exception: what a resource raised.
        """
        ...

    def start(self, call: Call) -> None:
        """Let a call run as soon as its node's options allow, at the latest when one is waited for."""
        ...

    def hurry(self) -> None:
        """Say that no more calls are started for now: those that were may begin, which else may wait for
        more, so that what runs them is woken once for many.
        """
        ...

    def ended(self, wait_seconds: float) -> Sequence[Call]:
        """Return the calls that have ended since this was asked last, each with its result or error.

        :param wait_seconds: for one, if there is none yet.
        :raises KStreamsError: what runs the calls cannot go on.
        """
        ...

    def thread_states(self) -> Sequence[ThreadState]:
        """Return what each thread that runs calls is at; none where the task's own thread runs them."""
        ...

    @property
    def threads_replaced(self) -> int:
        """How many threads were made in place of another one."""
        ...

    def close(self) -> None:
        """Give up what runs, and close the resources; nothing happens the second time."""
        ...


#: Makes a task's caller, given its asynchronous nodes.
MakeCaller = Callable[[Sequence[AsyncNode]], Caller]
