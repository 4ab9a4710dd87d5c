"""Defines the function that an asynchronous node calls, the options of its calls, and the policy by which a
failed call is made again; nothing runs here.

An operator whose trait ``calls`` is set binds through ``NodeContext.calls``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

from airflow_kstreams.streams.errors import KStreamsError, TopologyError
from airflow_kstreams.streams.graph.store_specs import RetryStoreSpec
from airflow_kstreams.streams.hints.function_checks import call_site, check_choice
from airflow_kstreams.streams.naming.topic_names import RETRY_ENDING
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.internal_serdes import parked_keys, parked_records
from airflow_kstreams.streams.serde.serde_checks import check_serdes

#: The calls of a node that may run at the same time, and the promised order of their results.
#:
#: - ``partition``: any; results leave in input order.
#: - ``key``: at most one of each key, in input order.
#: - ``unordered``: any; no order is promised in sinks of the user's own topics.
CallOrder = Literal["partition", "key", "unordered"]
#: The parts of a record that a node passes on.
HandedOn = frozenset[Literal["key", "value"]]
#: A function that makes a context manager, asynchronous or not, whose object calls share.
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
    """The options by which an asynchronous node calls its function.

    :param max_in_flight: most calls of a task that run at once.
    :param order: order of the calls, see ``CallOrder``.
    :param timeout_ms: milliseconds after which a call is given up.
    :param retry: policy by which a failed call is made again; None for one call only.
    :param threads: True if the function is a plain one, which runs on a thread.
    :param resource: function that makes the context manager whose object the calls of a task share; None for
        none.
    :param key_name: the node's name in idempotency keys; empty for the node's own.
    :param implicit: True for the function of a plain operator, which the engine runs on threads by itself: it
        is given neither a call context nor a resource.
    """

    max_in_flight: int = 64
    order: CallOrder = "partition"
    timeout_ms: int = 30_000
    retry: RetryPolicy | None = None
    threads: bool = False
    resource: ResourceFactory | None = None
    key_name: str = ""
    implicit: bool = False

    @property
    def parks(self) -> bool:
        """True if records whose call failed are parked in a retry topic."""
        return self.retry is not None and self.order != "partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpec:
    """The function that a node calls, and the use of its answer.

    :param function: the user's function.
    :param arguments: function that makes its positional arguments of a record's key and value.
    :param options: options of the calls.
    :param hands_on: the parts of the record, key or value, that the node passes on beside the answer.
    :param buffers_output: True for a function of the engine: it takes ``context`` and ``resource``, and
        returns buffered output.
    :param with_context: True if the function of a plain operator is given the record's context.
    """

    function: Callable[..., Any]
    arguments: Callable[[Any, Any], tuple[Any, ...]]
    options: CallOptions
    hands_on: HandedOn = frozenset(("key", "value"))
    buffers_output: bool = False
    with_context: bool = False


def checked_options(what: str, options: CallOptions, name: str | None) -> CallOptions:
    """Refuse options of calls that are not valid.

    :param what: the method or processor that was given them, for the message: ``map_values_async``, or
        ``processor 'charge'``.
    :param name: the node's name given by the user; None if it is numbered.
    :return: the options.
    :raises TopologyError: an option is not valid; the error names it and the user's line.
    """
    where = f"{what} at {call_site()}"
    for option in ("max_in_flight", "timeout_ms"):
        number = getattr(options, option)
        if type(number) is not int or number < 1:
            raise TopologyError(f"{where} has {option}={number!r}", fix="give a whole number from 1 on")
    check_choice(where, get_args(CallOrder), order=options.order)
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


#: The fate of a record whose last call has failed.
GivenUp = Literal["dead-letter", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The policy by which a failed call is made again.

    With order ``key`` and ``unordered`` the record is parked in the retry topic
    ``<application id>-<name>-retry`` meanwhile, with the later records of its key behind it; with order
    ``partition`` it waits in its place, for ``retry.run.budget.ms`` at most (``docs/explanation/async.md``).

    :param attempts: most calls of a record, the first one included.
    :param backoff_ms: milliseconds from the first call's failure to the second call.
    :param multiplier: factor by which the wait grows from call to call.
    :param backoff_max_ms: longest wait, in milliseconds.
    :param jitter: largest share of the wait, 0 to 1, that is taken off it; the share is computed from the
        record and the attempt, so that a repeated run waits as long.
    :param errors: classes of errors after which a call is made again; any other error is handled as
        without a policy. No call is made again after an error of the engine's own.
    :param then: fate of a record whose last call has failed: ``dead-letter``, or ``fail`` the run.
    :param max_parked: number of parked records at which a task chooses no more until some are done.
    :param key_serde: serde of the keys that the node gets, where none is known.
    :param value_serde: serde of the values that the node gets, where none is known.
    :raises TopologyError: one of them is not valid.

    >>> import asyncio
    >>> from airflow_kstreams.streams import RetryPolicy
    >>> down = [True]
    >>> async def price_of(article):
    ...     if down[0]:
    ...         raise ConnectionError("the service is away")
    ...     return {"pear": 2, "fig": 3}[article]
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    >>> retry = RetryPolicy(attempts=5, backoff_ms=1_000, errors=(ConnectionError,))
    >>> priced = builder.stream("articles").map_values_async(price_of, order="key", retry=retry, name="price")
    >>> priced.send_to("prices")
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     driver.pipe_input("articles", key="a", value="pear", timestamp_ms=1)
    ...     down[0] = False
    ...     driver.pipe_input("articles", key="a", value="fig", timestamp_ms=2)
    ...     parked = len(driver.read_output("prices"))
    ...     driver.advance_wall_clock(1_000)
    ...     parked, [record.value for record in driver.read_output("prices")]
    (0, [2, 3])
    """

    attempts: int = 5
    backoff_ms: int = 1_000
    multiplier: float = 2.0
    backoff_max_ms: int = 60_000
    jitter: float = 0.2
    errors: tuple[type[Exception], ...] = (Exception,)
    then: GivenUp = "dead-letter"
    max_parked: int = 10_000
    key_serde: Serde | None = None
    value_serde: Serde | None = None

    def __post_init__(self) -> None:
        check_serdes("RetryPolicy", key_serde=self.key_serde, value_serde=self.value_serde)
        for name, least in (("attempts", 2), ("backoff_ms", 0), ("backoff_max_ms", 0), ("max_parked", 1)):
            number = getattr(self, name)
            if type(number) is not int or number < least:
                raise _refused(name, number, f"give a whole number from {least} on")
        if not _is_number(self.multiplier) or not 1 <= self.multiplier <= 1_000:
            raise _refused("multiplier", self.multiplier, "give a number from 1 to 1,000")
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise _refused("jitter", self.jitter, "give a share from 0 to 1")
        if self.backoff_max_ms < self.backoff_ms:
            raise _refused(
                "backoff_max_ms", self.backoff_max_ms, f"give backoff_ms={self.backoff_ms} or more"
            )
        if self.then not in get_args(GivenUp):
            raise _refused("then", self.then, f"choose one of: {', '.join(get_args(GivenUp))}")
        if not isinstance(self.errors, tuple) or not self.errors or not all(map(_is_error, self.errors)):
            raise _refused("errors", self.errors, "give a tuple of classes of errors: (ConnectionError,)")


def calls_again_after(policy: RetryPolicy, error: Exception | None) -> bool:
    """Return True if a call is made again after an error, provided that attempts are left."""
    return isinstance(error, policy.errors) and not isinstance(error, KStreamsError)


def delay_after(policy: RetryPolicy, failures: int, drawn_from: str) -> int:
    """Return the milliseconds to wait after a failure.

    :param failures: number of the record's calls that have failed, from 1 on.
    :param drawn_from: text of the record, from which the jitter is computed together with ``failures``.
    """
    delay_ms = float(policy.backoff_ms)
    for _ in range(failures - 1):
        if delay_ms >= policy.backoff_max_ms:
            break
        delay_ms *= policy.multiplier
    digest = hashlib.blake2b(f"{drawn_from}/{failures}".encode(errors="replace"), digest_size=8).digest()
    share = int.from_bytes(digest) / 2**64
    return round(min(delay_ms, policy.backoff_max_ms) * (1 - policy.jitter * share))


def retry_store(node: str) -> str:
    """Return the name of the store whose changelog is the node's retry topic."""
    return f"{node}{RETRY_ENDING}"


def retry_spec(node: str, keys: Serde, values: Serde, *, keys_changed: bool) -> RetryStoreSpec:
    """Return the spec of the store of the records that a node parks.

    :param node: name of the node.
    :param keys: serde of the keys that the node gets.
    :param values: serde of the values that the node gets.
    :param keys_changed: True if the node may get other keys than those of the consumed records.
    """
    return RetryStoreSpec(
        name=retry_store(node),
        key_serde=parked_keys(),
        value_serde=parked_records(keys, values),
        cached=False,
        input_keys=keys,
        input_values=values,
        keys_changed=keys_changed,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Exception)


def _refused(name: str, value: object, fix: str) -> TopologyError:
    return TopologyError(f"RetryPolicy at {call_site()} has {name}={value!r}", fix=fix)
