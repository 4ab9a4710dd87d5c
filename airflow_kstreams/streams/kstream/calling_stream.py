"""What a stream does by functions whose answers take time, and what all methods of streams use."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Generic, Literal, Never, Self, Unpack, cast, overload

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.calls import (
    CallArguments,
    CallOptions,
    CallOrder,
    ResourceFactory,
    checked_options,
)
from airflow_kstreams.streams.graph.operator_traits import Operator
from airflow_kstreams.streams.graph.retry_policy import RetryPolicy, retry_spec
from airflow_kstreams.streams.graph.store_specs import RetryStoreSpec
from airflow_kstreams.streams.hints.call_site import call_site
from airflow_kstreams.streams.hints.function_checks import (
    check_called_functions,
    declared_by,
    refuse_other_arguments,
    refuse_unfilled,
    shown_as,
)
from airflow_kstreams.streams.kstream.known import KnownStream
from airflow_kstreams.streams.kstream.operators.asynchronous import (
    AsyncAction,
    AsyncFlatValueMapper,
    AsyncFunction,
    Asynchronous,
    AsyncKeyValueMapper,
    AsyncPredicate,
    AsyncValueMapper,
    ThreadAction,
    ThreadFlatValueMapper,
    ThreadKeyValueMapper,
    ThreadPredicate,
    ThreadValueMapper,
)
from airflow_kstreams.streams.kstream.operators.function_kinds import (
    FILTER,
    FLAT_MAP_VALUES,
    FOREACH,
    MAP,
    MAP_VALUES,
    FunctionKind,
)
from airflow_kstreams.streams.processor.async_processor import AsyncProcessorDef
from airflow_kstreams.streams.processor.calling_operator import CallingProcessorOperator
from airflow_kstreams.streams.processor.definitions import check_async_processor_def
from airflow_kstreams.streams.type_variables import KR, VR, K, V

if TYPE_CHECKING:
    from airflow_kstreams.streams.kstream.kstream import KStream


@shown_as("KStream")
class CallingStream(Generic[K, V]):
    """The part of :class:`~airflow_kstreams.streams.KStream` that waits for answers.

    :param known: what is known of it.
    """

    def __init__(self, known: KnownStream) -> None:
        self._known = known

    @overload
    def map_values_async(
        self,
        mapper: AsyncValueMapper[V, VR],
        *,
        threads: Literal[False] = False,
        **options: Unpack[CallArguments],
    ) -> KStream[K, VR]: ...
    @overload
    def map_values_async(
        self, mapper: ThreadValueMapper[V, VR], *, threads: Literal[True], **options: Unpack[CallArguments]
    ) -> KStream[K, VR]: ...
    def map_values_async(  # noqa: PLR0913  (options)
        self,
        mapper: AsyncFunction,
        *,
        max_in_flight: int = 64,
        order: CallOrder = "partition",
        timeout_ms: int = 30_000,
        retry: RetryPolicy | None = None,
        threads: bool = False,
        resource: ResourceFactory | None = None,
        name: str | None = None,
    ) -> KStream:
        """Replace each value by the answer of ``await mapper(value)``; calls for several records run at once.

        What follows sees the records in the order in which they came, whatever order the answers come in, and
        results, state and offsets are those of :meth:`map_values` with the same answers, exactly once. The
        calls themselves are repeated after a crash (``docs/async.md``).

        A mapper that declares a parameter ``context`` beside the value is given a
        :class:`~airflow_kstreams.streams.CallContext`; one that declares ``resource`` what ``resource`` gave.

        :param mapper: a coroutine function; with ``threads``, a plain one.
        :param max_in_flight: the most calls of a task that run at once.
        :param order: ``partition``: any calls run side by side; their effects may overtake each
            other. ``key``: at most one call of a key at a time, in input order. ``unordered``: nothing is
            promised of the order in sinks of topics of yours either.
        :param timeout_ms: after so long a call is cancelled and fails with ``CallTimeoutError``; it may take
            effect all the same. Must be less than ``run.stall.timeout.ms``.
        :param retry: when a failed call is made again, and its record parked meanwhile; needs ``name``. Never
            unless given.
        :param threads: whether calls run on threads, ``num.threads.per.task`` for all such nodes of a task.
        :param resource: makes an asynchronous context manager, as an HTTP session or a pool of connections
            is; each task enters it once, before the first record, and leaves it at its end.
        :param name: of the node, for messages, idempotency keys and the retry topic; numbered unless given.
        :raises TopologyError: the mapper is no such function, an option cannot be, or ``retry`` lacks a name
            or a serde.

        >>> import asyncio
        >>> async def price_of(article):
        ...     await asyncio.sleep(0.01)  # asks a service
        ...     return {"pear": 2, "fig": 3}[article]
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> builder.stream("articles").map_values_async(price_of).send_to("prices")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_records("articles", [("a", "pear", 1), ("b", "fig", 2)])
        ...     [(record.key, record.value) for record in driver.read_output("prices")]
        [('a', 2), ('b', 3)]
        """
        options = CallOptions(
            max_in_flight=max_in_flight,
            order=order,
            timeout_ms=timeout_ms,
            retry=retry,
            threads=threads,
            resource=resource,
        )
        known = self._called(MAP_VALUES, "mapper", mapper, options, name)
        return self._retyped(known.with_new_value("map_values_async"))

    @overload
    def map_async(
        self,
        mapper: AsyncKeyValueMapper[K, V, KR, VR],
        *,
        threads: Literal[False] = False,
        **options: Unpack[CallArguments],
    ) -> KStream[KR, VR]: ...
    @overload
    def map_async(
        self,
        mapper: ThreadKeyValueMapper[K, V, KR, VR],
        *,
        threads: Literal[True],
        **options: Unpack[CallArguments],
    ) -> KStream[KR, VR]: ...
    def map_async(  # noqa: PLR0913  (options)
        self,
        mapper: AsyncFunction,
        *,
        max_in_flight: int = 64,
        order: CallOrder = "partition",
        timeout_ms: int = 30_000,
        retry: RetryPolicy | None = None,
        threads: bool = False,
        resource: ResourceFactory | None = None,
        name: str | None = None,
    ) -> KStream:
        """Replace each record by the answer of ``await mapper(key, value)``, a pair of key and value.

        Calls, order and options are those of :meth:`map_values_async`.

        >>> async def swapped(key, value):
        ...     return value, key
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("words").map_async(swapped).send_to("swapped")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("words", key="a", value="ant", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("swapped")]
        [('ant', 'a')]
        """
        options = CallOptions(
            max_in_flight=max_in_flight,
            order=order,
            timeout_ms=timeout_ms,
            retry=retry,
            threads=threads,
            resource=resource,
        )
        known = self._called(MAP, "mapper", mapper, options, name)
        return self._retyped(known.with_new_key("map_async").with_new_value("map_async"))

    @overload
    def filter_async(
        self,
        predicate: AsyncPredicate[K, V],
        *,
        threads: Literal[False] = False,
        **options: Unpack[CallArguments],
    ) -> Self: ...
    @overload
    def filter_async(
        self, predicate: ThreadPredicate[K, V], *, threads: Literal[True], **options: Unpack[CallArguments]
    ) -> Self: ...
    def filter_async(  # noqa: PLR0913  (options)
        self,
        predicate: AsyncFunction,
        *,
        max_in_flight: int = 64,
        order: CallOrder = "partition",
        timeout_ms: int = 30_000,
        retry: RetryPolicy | None = None,
        threads: bool = False,
        resource: ResourceFactory | None = None,
        name: str | None = None,
    ) -> Self:
        """Keep the records for which ``await predicate(key, value)`` holds.

        Calls, order and options are those of :meth:`map_values_async`.

        >>> async def is_large(key, value):
        ...     return value > 1
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.stream("numbers").filter_async(is_large).send_to("large")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_records("numbers", [("a", 1, 0), ("a", 2, 0)])
        ...     [record.value for record in driver.read_output("large")]
        [2]
        """
        options = CallOptions(
            max_in_flight=max_in_flight,
            order=order,
            timeout_ms=timeout_ms,
            retry=retry,
            threads=threads,
            resource=resource,
        )
        return self._new(self._called(FILTER, "predicate", predicate, options, name))

    @overload
    def flat_map_values_async(
        self,
        mapper: AsyncFlatValueMapper[V, VR],
        *,
        threads: Literal[False] = False,
        **options: Unpack[CallArguments],
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values_async(
        self,
        mapper: ThreadFlatValueMapper[V, VR],
        *,
        threads: Literal[True],
        **options: Unpack[CallArguments],
    ) -> KStream[K, VR]: ...
    def flat_map_values_async(  # noqa: PLR0913  (options)
        self,
        mapper: AsyncFunction,
        *,
        max_in_flight: int = 64,
        order: CallOrder = "partition",
        timeout_ms: int = 30_000,
        retry: RetryPolicy | None = None,
        threads: bool = False,
        resource: ResourceFactory | None = None,
        name: str | None = None,
    ) -> KStream:
        """Replace each value by the values that ``await mapper(value)`` returns, each under the same key.

        Calls, order and options are those of :meth:`map_values_async`.

        >>> async def words(line):
        ...     return line.split()
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("lines").flat_map_values_async(words).send_to("words")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("lines", key="a", value="an ox", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("words")]
        [('a', 'an'), ('a', 'ox')]
        """
        options = CallOptions(
            max_in_flight=max_in_flight,
            order=order,
            timeout_ms=timeout_ms,
            retry=retry,
            threads=threads,
            resource=resource,
        )
        known = self._called(FLAT_MAP_VALUES, "mapper", mapper, options, name)
        return self._retyped(known.with_new_value("flat_map_values_async"))

    @overload
    def foreach_async(
        self, action: AsyncAction[K, V], *, threads: Literal[False] = False, **options: Unpack[CallArguments]
    ) -> None: ...
    @overload
    def foreach_async(
        self, action: ThreadAction[K, V], *, threads: Literal[True], **options: Unpack[CallArguments]
    ) -> None: ...
    def foreach_async(  # noqa: PLR0913  (options)
        self,
        action: AsyncFunction,
        *,
        max_in_flight: int = 64,
        order: CallOrder = "partition",
        timeout_ms: int = 30_000,
        retry: RetryPolicy | None = None,
        threads: bool = False,
        resource: ResourceFactory | None = None,
        name: str | None = None,
    ) -> None:
        """Await ``action(key, value)`` for each record, as the end of the stream; a topology with such an end
        needs no sink. What the action does lies outside the transaction: an attempt that resumes after a
        crash calls it again for the records that it repeats, with the same ``context.idempotency_key``.

        Calls, order and options are those of :meth:`map_values_async`.

        >>> seen = []
        >>> async def note(key, value, *, context):
        ...     seen.append((value, context.idempotency_key))
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("words").foreach_async(note, name="note")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("words", key="a", value="ant", timestamp_ms=0)
        ...     seen
        [('ant', 'demo/words-0@0/note/0')]
        """
        options = CallOptions(
            max_in_flight=max_in_flight,
            order=order,
            timeout_ms=timeout_ms,
            retry=retry,
            threads=threads,
            resource=resource,
        )
        self._called(FOREACH, "action", action, options, name)

    def process_async(  # noqa: PLR0913  (options)
        self,
        processor_def: AsyncProcessorDef[K, V, KR, VR],
        *stores: Never,
        max_in_flight: int = 64,
        order: CallOrder = "partition",
        timeout_ms: int = 30_000,
        retry: RetryPolicy | None = None,
        threads: bool = False,
        resource: ResourceFactory | None = None,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Run a processor on each record, calls for several records at once; what it forwards is the
        resulting stream, in the order of the records.

        Calls, order and options are those of :meth:`map_values_async`; a call's answer is what it forwards.

        :param processor_def: makes a new :class:`AsyncProcessor` for each task; a class will do. Its
            ``process`` is written with ``async def``; with ``threads``, with ``def``.
        :param stores: none: they are refused by name.
        :raises TopologyError: the definition makes no such processor, an option cannot be, or ``retry`` lacks
            a name or a serde.

        >>> class Spread(AsyncProcessor):
        ...     def init(self, context):
        ...         self.context = context
        ...
        ...     async def process(self, record):
        ...         for number in range(record.value):
        ...             self.context.forward(record.key, number, timestamp_ms=number)
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> builder.stream("numbers").process_async(Spread, name="spread").send_to("out")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_records("numbers", [("a", 2, 9), ("b", 1, 9)])
        ...     [(record.key, record.value, record.timestamp_ms) for record in driver.read_output("out")]
        [('a', 0, 0), ('a', 1, 1), ('b', 0, 0)]
        """
        call = "process_async"
        given: tuple[object, ...] = stores
        for store in given:
            raise TopologyError(
                f"{call} at {call_site()} is given the store {getattr(store, 'name', store)!r}: what calls "
                "for several records see there would depend on time",
                fix="keep the store in a processor above or below, with process(definition, store)",
            )
        options = CallOptions(
            max_in_flight=max_in_flight,
            order=order,
            timeout_ms=timeout_ms,
            retry=retry,
            threads=threads,
            resource=resource,
        )
        checked_options(call, options, name)
        check_async_processor_def(processor_def, call, call_site(), threads=threads)
        operator = CallingProcessorOperator(definition=processor_def, calls=options)
        known = self._added("KSTREAM-PROCESSOR-ASYNC", operator, options, name, call)
        return self._retyped(known.with_new_key(call).with_new_value(call))

    def _called(
        self,
        kind: FunctionKind,
        argument: str,
        function: AsyncFunction,
        options: CallOptions,
        name: str | None,
    ) -> KnownStream:
        """Add the node, and return the stream of its results, otherwise alike.

        :param argument: what the function is called in the DSL method.
        :raises TopologyError: the function or an option cannot be.
        """
        operator = Asynchronous(kind=kind, function=function, calls=options)
        call, called_with, by_name = (
            operator.type,
            kind.arguments("key", "value"),
            sorted(declared_by(function)),
        )
        check_called_functions(call, threads=options.threads, **{argument: function})
        refuse_unfilled(call, function, resource=options.resource is not None)
        refuse_other_arguments(call, argument, function, called_with, by_name=by_name)
        checked_options(call, options, name)
        prefix = f"KSTREAM-{kind.type.replace('_', '').upper()}-ASYNC"
        return self._added(prefix, operator, options, name, call)

    def _added(
        self, kind: str, operator: Operator, options: CallOptions, name: str | None, call: str
    ) -> KnownStream:
        """Add an asynchronous node, with its retry topic if it has one, and return the stream of its results.

        :param kind: begins the name of a node that the user gave none.
        :param call: the DSL method, for messages.
        :raises TopologyError: a serde is missing.
        """
        if name is None:
            return self._known.behind(kind, operator)
        topology = self._known.graph.topology
        topology.add_operator(name, operator, self._known.node)
        if options.retry is not None and options.parks:
            topology.add_state_store(self._retry_store(name, options.retry, call), name)
        return self._known.at(name)

    def _retry_store(self, name: str, retry: RetryPolicy, call: str) -> RetryStoreSpec:
        """Return the store of what a node parks.

        :raises TopologyError: a serde is missing.
        """
        graph, known = self._known.graph, self._known.serdes
        option, of = "RetryPolicy(key_serde)", f"{call}(retry=)"
        keys = graph.serde("key", retry.key_serde, known, of, option=option)
        values = graph.serde("value", retry.value_serde, known, of, option=option.replace("key", "value"))
        return retry_spec(name, keys, values, keys_changed=self._known.key_changed)

    def _new(self, known: KnownStream) -> Self:
        """Return a stream of the same kind further down: a windowed one stays windowed."""
        stream = copy.copy(self)
        stream._known = known
        return stream

    def _retyped(self, known: KnownStream) -> KStream:
        """Return such a stream with keys or values of other types."""
        return cast("KStream", self._new(known))

    def _behind(self, kind: str, operator: Operator, name: str | None = None) -> Self:
        return self._new(self._known.behind(kind, operator, name))

    def _revalued(self, kind: str, operator: Operator, call: str, name: str | None) -> KStream:
        return self._retyped(self._known.behind(kind, operator, name).with_new_value(call))

    def _rekeyed(self, kind: str, operator: Operator, call: str, name: str | None) -> KStream:
        return self._retyped(self._known.behind(kind, operator, name).with_new_key(call).with_new_value(call))
