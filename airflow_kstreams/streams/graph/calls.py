"""The options of an asynchronous node's calls, and what such a node calls; nothing runs here.

An operator whose trait ``calls`` is set binds through ``NodeContext.calls``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.retry_policy import RetryPolicy
from airflow_kstreams.streams.hints.call_site import call_site

#: Which calls of a node may run at the same time, and what is promised of what they give.
#:
#: - ``partition``: any; results leave in input order.
#: - ``key``: at most one of each key, in input order.
#: - ``unordered``: any; no order is promised in sinks of the user's own topics.
CallOrder = Literal["partition", "key", "unordered"]

#: Which of key and value.
HandedOn = frozenset[Literal["key", "value"]]

#: Makes a context manager, asynchronous or not, whose object calls share.
ResourceFactory = Callable[[], Any]


class CallArguments(TypedDict, total=False):
    """The options of asynchronous methods, for type checkers; see :class:`CallOptions`."""

    max_in_flight: int
    order: CallOrder
    timeout_ms: int
    retry: RetryPolicy | None
    resource: ResourceFactory | None
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """How an asynchronous node calls its function.

    :param max_in_flight: the most calls that run at once, in one task.
    :param order: see ``CallOrder``.
    :param timeout_ms: after which a call is given up.
    :param retry: when a failed call is made again; None: never.
    :param threads: whether the function is a plain one, which runs on a thread.
    :param resource: makes the context manager whose object the calls of a task share; None for none.
    :param implicit: whether the function was not written to be called so: a plain operator's, in a task with
        several threads. It is offered nothing.
    """

    max_in_flight: int = 64
    order: CallOrder = "partition"
    timeout_ms: int = 30_000
    retry: RetryPolicy | None = None
    threads: bool = False
    resource: ResourceFactory | None = None
    implicit: bool = False

    @property
    def parks(self) -> bool:
        """Whether records whose call failed are parked in a retry topic."""
        return self.retry is not None and self.order != "partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpec:
    """What a node calls.

    :param function: the user's.
    :param arguments: makes the positional arguments of a record's key and value.
    :param hands_on: which of key and value the node passes on beside the answer.
    :param buffers_output: whether the function is the engine's own: it takes ``context`` and ``resource``,
        and returns buffered output.
    :param with_context: whether the function is given the record's context; of plain operators only.
    """

    function: Callable[..., Any]
    arguments: Callable[[Any, Any], tuple[Any, ...]]
    options: CallOptions
    hands_on: HandedOn = frozenset(("key", "value"))
    buffers_output: bool = False
    with_context: bool = False


def checked_options(what: str, options: CallOptions, name: str | None) -> CallOptions:
    """Refuse options of calls that cannot be, wherever they are given.

    :param what: was given them, for the message: ``map_values_async``, or ``processor 'charge'``.
    :param name: that the user gave the node; None if it is numbered.
    :return: the options.
    :raises TopologyError: one of them cannot be; it is named with the user's line.
    """
    where = f"{what} at {call_site()}"
    for option in ("max_in_flight", "timeout_ms"):
        number = getattr(options, option)
        if type(number) is not int or number < 1:
            raise TopologyError(f"{where} has {option}={number!r}", fix="give a whole number from 1 on")
    if options.order not in get_args(CallOrder):
        raise TopologyError(
            f"{where} has order={options.order!r}", fix=f"choose one of: {', '.join(get_args(CallOrder))}"
        )
    if type(options.threads) is not bool:
        raise TopologyError(f"{where} has threads={options.threads!r}", fix="give True or False")
    if options.retry is not None and not isinstance(options.retry, RetryPolicy):
        raise TopologyError(
            f"{where} is given {type(options.retry).__name__} as retry",
            fix="pass a RetryPolicy, e.g. retry=RetryPolicy(attempts=5)",
        )
    if options.retry is not None and name is None:
        raise TopologyError(
            f"{where} has retry= and no name=",
            fix="name the node: parked records are found again by that name when the topology has changed",
        )
    if options.resource is not None and not callable(options.resource):
        raise TopologyError(
            f"{where} is given {type(options.resource).__name__} as resource, expected a function",
            fix="pass what makes the context manager, e.g. httpx.AsyncClient itself",
        )
    return options
