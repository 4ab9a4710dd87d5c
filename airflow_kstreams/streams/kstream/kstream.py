"""The stream that users build topologies of, alone and with a window for joins of two streams.

Modules below add the nodes of a method to the topology: ``user_functions.py`` those with functions of the
user, ``tables/`` and ``stream_join.py`` joins. Each stream holds its description (``known.py``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Required, TypedDict, Unpack, cast, overload

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.calls import CallArguments, CallOrder, ResourceFactory, RetryPolicy
from airflow_kstreams.streams.graph.nodes import Partitioner
from airflow_kstreams.streams.graph.store_specs import Storage, StoreSpec
from airflow_kstreams.streams.hints.function_checks import call_site, check_functions, options_by_name
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.kstream.arguments import (
    GroupedRecords,
    StoreArgument,
    check_partitions,
    check_partner,
    check_topic,
    no_window_error,
)
from airflow_kstreams.streams.kstream.graph import Serdes, check_name
from airflow_kstreams.streams.kstream.grouped import KGroupedStream
from airflow_kstreams.streams.kstream.known import KnownStream, WindowedStream, merged
from airflow_kstreams.streams.kstream.ktable import KTable
from airflow_kstreams.streams.kstream.operators.function_kinds import (
    FILTER,
    FILTER_NOT,
    FLAT_MAP,
    FLAT_MAP_VALUES,
    FOREACH,
    MAP,
    MAP_VALUES,
    PEEK,
    SELECT_KEY,
    SET_HEADERS,
    SET_TIMESTAMP,
)
from airflow_kstreams.streams.kstream.operators.map_batches import BatchFunction
from airflow_kstreams.streams.kstream.operators.stateless import (
    Action,
    AsyncAction,
    AsyncFlatValueMapper,
    AsyncFunction,
    AsyncKeyValueMapper,
    AsyncPredicate,
    AsyncValueMapper,
    FlatMapper,
    FlatValueMapper,
    GroupSelector,
    HeadersFunction,
    KeySelector,
    KeyValueMapper,
    Predicate,
    ThreadAction,
    ThreadFlatValueMapper,
    ThreadKeyValueMapper,
    ThreadPredicate,
    ThreadValueMapper,
    TimestampFunction,
    ValueMapper,
)
from airflow_kstreams.streams.kstream.operators.tables.table_join import GlobalKeySelector, ValueJoiner
from airflow_kstreams.streams.kstream.operators.windows.windowed_join import JoinKind
from airflow_kstreams.streams.kstream.stream_join import (
    JoinOptions,
    check_join_window,
    check_table_options,
    join_streams,
)
from airflow_kstreams.streams.kstream.tables.derived_tables import table_of
from airflow_kstreams.streams.kstream.tables.global_table import (
    GlobalKTable,
    join_global_table,
    key_in_vain_error,
)
from airflow_kstreams.streams.kstream.tables.rows_of_streams import write_rows
from airflow_kstreams.streams.kstream.tables.stream_table_join import join_table
from airflow_kstreams.streams.kstream.user_functions import (
    Branches,
    applied,
    branched,
    called,
    in_batches,
    processed,
    processed_async,
)
from airflow_kstreams.streams.processor.processor import AsyncProcessorDef, ProcessorDef
from airflow_kstreams.streams.records.record_context import InContext, RecordContext
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.tables.specs import DeltaTable, IcebergTable
from airflow_kstreams.streams.type_variables import KR, VO, VR, K, V
from airflow_kstreams.streams.windows import SlidingWindow

if TYPE_CHECKING:
    from airflow_kstreams.streams.kstream.operators.map_batches import BatchSchema
    from airflow_kstreams.streams.serde.base import Writes

#: The remedy of a join that is called with other arguments: the calls that there are.
_STREAM_JOINS = (
    "write join(table, joiner), join(global_table, joiner, key=selector), or of streams with windows "
    "join(stream, joiner); options by name"
)


class AsyncArguments(CallArguments, total=False):
    """Options of an asynchronous method that is given a coroutine function, for type checkers."""

    threads: Literal[False]


class ThreadArguments(CallArguments, total=False):
    """Options of an asynchronous method that is given a plain function, for type checkers."""

    threads: Required[Literal[True]]


class TableJoinOptions(TypedDict, Generic[V], total=False):
    """Options of a stream's join with a table, for type checkers."""

    value_serde: Serde[V] | None
    name: str | None


class StreamJoinOptions(TableJoinOptions[V], Generic[K, V, VO], total=False):
    """Options of a join of two streams, for type checkers."""

    key_serde: Serde[K] | None
    other_value_serde: Serde[VO] | None


@answers_java_names
class KStream(Generic[K, V]):
    """A stream of (key, value); every method adds to the topology and leaves this stream as it is.

    Functions are called positionally and run once per record, so they must depend on their arguments alone.
    All nodes below get the same value, so a function returns a new value and leaves its argument as it is. A
    key or value is None where a topic's record lacks it.

    :param known: the stream's description: node, serdes, and the topics that it reads.
    """

    def __init__(self, known: KnownStream) -> None:
        self._known = known

    def filter(
        self, predicate: Predicate[K, V] | InContext[K, V, bool], *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which ``predicate(key, value)`` holds.

        :param name: the node's name in messages, counts and pictures; numbered by default.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.stream("numbers").filter(lambda key, value: value > 1).send_to("large")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2, 3):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     [record.value for record in driver.read_output("large")]
        [2, 3]
        """
        return KStream(applied(self._known, FILTER, name, predicate=predicate))

    def filter_not(
        self, predicate: Predicate[K, V] | InContext[K, V, bool], *, name: str | None = None
    ) -> KStream[K, V]:
        """Drop the records for which ``predicate(key, value)`` holds, keep the others.

        :param name: the node's name in messages, counts and pictures; numbered by default.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.stream("numbers").filter_not(lambda key, value: value > 1).send_to("small")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2, 3):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     [record.value for record in driver.read_output("small")]
        [1]
        """
        return KStream(applied(self._known, FILTER_NOT, name, predicate=predicate))

    def peek(
        self, action: Action[K, V] | InContext[K, V, object], *, name: str | None = None
    ) -> KStream[K, V]:
        """Call ``action(key, value)`` for each record, e.g. to log or count it, and pass the record on as it
        is.

        :param action: function whose result is ignored; an attempt that resumes after a crash calls it again.
        :param name: the node's name in messages, counts and pictures; numbered by default.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> seen = []
        >>> numbers = builder.stream("numbers").peek(lambda key, value: seen.append(value))
        >>> numbers.send_to("same")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     seen, [record.value for record in driver.read_output("same")]
        ([1, 2], [1, 2])
        """
        return KStream(applied(self._known, PEEK, name, action=action))

    def foreach(self, action: Action[K, V] | InContext[K, V, object], *, name: str | None = None) -> None:
        """Call ``action(key, value)`` for each record, as the end of the stream; a topology with such an end
        needs no sink.

        The action's effects lie outside the transaction: an attempt that resumes after a crash calls it again
        for the records that it repeats.

        :param action: function whose result is ignored; it runs where the task runs.
        :param name: the node's name in messages, counts and pictures; numbered by default.
        :raises TopologyError: it is no function.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> seen = []
        >>> builder.stream("numbers").foreach(lambda key, value: seen.append((key, value)))
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     seen
        [('a', 1), ('a', 2)]
        """
        applied(self._known, FOREACH, name, action=action)

    @overload
    def select_key(self, selector: KeySelector[K, V, KR], *, name: str | None = None) -> KStream[KR, V]: ...
    @overload
    def select_key(
        self, selector: Callable[[K, V, RecordContext], KR], *, name: str | None = None
    ) -> KStream[KR, V]: ...
    def select_key(self, selector: Callable[..., Any], *, name: str | None = None) -> KStream:
        """Replace each key by ``selector(key, value)``; a group or join of the result repartitions it.

        :param name: the node's name in messages, counts and pictures; numbered by default.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("words").select_key(lambda key, value: value[0]).send_to("by-letter")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in ("ant", "bee"):
        ...         driver.pipe_input("words", key="a", value=value, timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("by-letter")]
        [('a', 'ant'), ('b', 'bee')]
        """
        return KStream(applied(self._known, SELECT_KEY, name, selector=selector))

    @overload
    def map(self, mapper: KeyValueMapper[K, V, KR, VR], *, name: str | None = None) -> KStream[KR, VR]: ...
    @overload
    def map(
        self, mapper: Callable[[K, V, RecordContext], tuple[KR, VR]], *, name: str | None = None
    ) -> KStream[KR, VR]: ...
    def map(self, mapper: Callable[..., Any], *, name: str | None = None) -> KStream:
        """Replace each record by ``mapper(key, value)``, a pair of key and value.

        :param name: the node's name in messages, counts and pictures; numbered by default.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("words").map(lambda key, value: (value, key)).send_to("swapped")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("words", key="a", value="ant", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("swapped")]
        [('ant', 'a')]
        """
        return KStream(applied(self._known, MAP, name, mapper=mapper))

    @overload
    def map_values(self, mapper: ValueMapper[V, VR], *, name: str | None = None) -> KStream[K, VR]: ...
    @overload
    def map_values(
        self, mapper: Callable[[V, RecordContext], VR], *, name: str | None = None
    ) -> KStream[K, VR]: ...
    @overload
    def map_values(self, mapper: Callable[[V, K], VR], *, name: str | None = None) -> KStream[K, VR]: ...
    def map_values(self, mapper: Callable[..., Any], *, name: str | None = None) -> KStream:
        """Replace each value by ``mapper(value)``; the key stays, so nothing is repartitioned.

        A mapper that declares a parameter ``key`` is given the record's key by that name, and must not change
        it: ``lambda value, key: ...``.

        :param name: the node's name in messages, counts and pictures; numbered by default.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.stream("numbers").map_values(lambda value: 2 * value).send_to("doubled")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     [record.value for record in driver.read_output("doubled")]
        [2, 4]
        """
        return KStream(applied(self._known, MAP_VALUES, name, mapper=mapper))

    @overload
    def flat_map(self, mapper: FlatMapper[K, V, KR, VR], *, name: str | None = None) -> KStream[KR, VR]: ...
    @overload
    def flat_map(
        self, mapper: Callable[[K, V, RecordContext], Iterable[tuple[KR, VR]]], *, name: str | None = None
    ) -> KStream[KR, VR]: ...
    def flat_map(self, mapper: Callable[..., Any], *, name: str | None = None) -> KStream:
        """Replace each record by the (key, value) pairs that ``mapper(key, value)`` yields.

        :param name: the node's name in messages, counts and pictures; numbered by default.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> lines = builder.stream("lines")
        >>> words = lines.flat_map(lambda key, value: [(word[0], word) for word in value.split()])
        >>> words.send_to("words")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("lines", key=None, value="an ox", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("words")]
        [('a', 'an'), ('o', 'ox')]
        """
        return KStream(applied(self._known, FLAT_MAP, name, mapper=mapper))

    @overload
    def flat_map_values(
        self, mapper: FlatValueMapper[V, VR], *, name: str | None = None
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values(
        self, mapper: Callable[[V, RecordContext], Iterable[VR]], *, name: str | None = None
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values(
        self, mapper: Callable[[V, K], Iterable[VR]], *, name: str | None = None
    ) -> KStream[K, VR]: ...
    def flat_map_values(self, mapper: Callable[..., Any], *, name: str | None = None) -> KStream:
        """Replace each value by the values that ``mapper(value)`` yields, each under the same key, which the
        mapper may declare as in :meth:`map_values`.

        :param name: the node's name in messages, counts and pictures; numbered by default.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("lines").flat_map_values(str.split).send_to("words")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("lines", key="a", value="an ox", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("words")]
        [('a', 'an'), ('a', 'ox')]
        """
        return KStream(applied(self._known, FLAT_MAP_VALUES, name, mapper=mapper))

    def map_batches(
        self,
        function: BatchFunction,
        *,
        batch_size: int = 10_000,
        schema: BatchSchema | None = None,
        changes_key: bool = True,
        with_offsets: bool = False,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Replace batches of records by ``function(batch)``, vectorised: a ``pyarrow.RecordBatch`` for a
        ``pyarrow.RecordBatch``.

        The columns of the batch it takes are ``key``, ``value`` (null for a record without) and
        ``timestamp_ms`` (int64), one row for each record in the order they came. A dict becomes a struct, a
        list a list; typed objects must be made dicts before, e.g. by ``map_values(msgspec.structs.asdict)``.
        Column types are inferred from each batch, so a field that is null throughout has Arrow's null type;
        give ``schema`` to have the same types in every batch. ``with_offsets=True`` adds ``topic`` (string),
        ``partition`` and ``offset`` (int64): where each record was read, null for one that belongs to no
        record, as a table's update at a commit point.

        The batch it returns holds ``value``. Without a column ``key``, or ``timestamp_ms``, each row keeps
        that of the record in its place; if the number of rows changes, it must hold all three, as what
        ``batch.filter(...)`` returns does. Its rows become records in their order, as ``to_pylist`` has them;
        topics, partitions and offsets among their columns are left out. They belong to no record: headers are
        empty.

        A batch ends at ``batch_size`` records and at every commit point. The task's commit points are then
        counted in records (``commit.every.records``), so batches, and with them results, are the same however
        often the task crashes. What follows this node sees records up to a batch late: by then stream time
        may have moved on, so put windows before it, or give them the grace. An error of the function fails
        the task, whatever the error policy is. ``TopologyTestDriver`` commits after each record: batches of
        one.

        :param function: function of the batch alone; it needs pyarrow wherever tasks run.
        :param batch_size: most records in a batch, 1 or more.
        :param schema: a ``pyarrow.Schema`` of all of the batch's columns, with ``timestamp_ms`` int64.
        :param changes_key: False promises that every result has the key of a record in its own place or
            partition: the key's serde stays known, and a group or join of the result repartitions nothing.
        :param with_offsets: True for the columns ``topic``, ``partition`` and ``offset``.
        :param name: the node's name in messages, counts and pictures; numbered by default.
        :raises TopologyError: no function, no positive size, or a schema of other columns is given.

        >>> import pyarrow
        >>> import pyarrow.compute as pc
        >>> from airflow_kstreams.streams import KStreamBuilder, serdes
        >>> from airflow_kstreams.testing import TopologyTestDriver
        >>> def in_cents(batch):
        ...     cents = pc.multiply(batch.column("value"), 100)
        ...     return pyarrow.RecordBatch.from_arrays([cents], names=["value"])
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> builder.stream("prices").map_batches(in_cents).send_to("cents")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("prices", key="a", value=3, timestamp_ms=100)
        ...     [(record.key, record.value, record.timestamp_ms) for record in driver.read_output("cents")]
        [('a', 300, 100)]
        """
        return KStream(
            in_batches(
                self._known,
                function,
                batch_size,
                schema,
                changes_key=changes_key,
                with_offsets=with_offsets,
                name=name,
            )
        )

    def set_headers(
        self,
        function: HeadersFunction[K, V] | InContext[K, V, Sequence[tuple[str, bytes | None]]],
        *,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Give each record the headers that ``function(key, value)`` returns, in place of those it has.

        Sinks below write them, and functions and processors below see them. Results that time brings, and
        those of a cached table, have no headers.

        :param function: function that returns a list of (name, bytes or None); to add a header, it declares a
            ``context`` and returns ``[*context.headers, ("name", b"value")]``.
        :param name: the node's name in messages, counts and pictures; numbered by default.
        :raises TopologyError: it is no function, or the name is taken.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> builder.stream("orders").set_headers(lambda key, value: [("kind", b"order")]).send_to("all")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("orders", key="a", value=1, timestamp_ms=0, headers=[("old", b"")])
        ...     driver.read_output("all")[0].headers
        [('kind', b'order')]
        """
        return KStream(applied(self._known, SET_HEADERS, name, function=function))

    def set_timestamp(
        self, function: TimestampFunction[K, V] | InContext[K, V, int], *, name: str | None = None
    ) -> KStream[K, V]:
        """Date each record by ``function(key, value)``, epoch milliseconds.

        Sinks below write this time, tables note it, and functions and processors below see it. Windows and
        joins of streams below go by it: they stand behind a repartition topic even if no operator changed the
        key, since stream time is that of the records that a task reads. To read a topic with other times than
        its own takes no node: ``stream(topic, timestamps=...)``.

        :param function: function that returns 0 or more; anything else fails the record as an error of this
            node.
        :param name: the node's name in messages, counts and pictures; numbered by default.
        :raises TopologyError: it is no function, or the name is taken.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> builder.stream("orders").set_timestamp(lambda key, value: value["at"]).send_to("dated")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("orders", key="a", value={"at": 5}, timestamp_ms=90)
        ...     driver.read_output("dated")[0].timestamp_ms
        5
        """
        return KStream(applied(self._known, SET_TIMESTAMP, name, function=function))

    def branch(
        self, *predicates: Predicate[K, V] | InContext[K, V, bool], name: str | None = None
    ) -> list[KStream[K, V]]:
        """Split the stream, one branch per predicate.

        A record goes to the branch of the first ``predicate(key, value)`` that holds; it is dropped if none
        does.

        :param predicates: one function for each branch, tried in order.
        :param name: the node's name; its branches are called ``<name>-1`` and so on. Numbered by default.
        :return: the branches, in the order of the predicates.
        :raises TopologyError: there is no predicate.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> even, rest = builder.stream("numbers").branch(
        ...     lambda key, value: value % 2 == 0, lambda key, value: True
        ... )
        >>> even.send_to("even")
        >>> rest.send_to("odd")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2, 3):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     [[record.value for record in driver.read_output(topic)] for topic in ("even", "odd")]
        [[2], [1, 3]]
        """
        numbered = [(str(number), predicate) for number, predicate in enumerate(predicates, start=1)]
        return [KStream(known) for known in branched(self._known, "branch", numbered, name=name)]

    @options_by_name(
        fix="give each branch its name, split(small=predicate, default='other'); branch(predicate, ...) "
        "takes predicates without names"
    )
    def split(
        self,
        /,
        *,
        default: str | None = None,
        name: str | None = None,
        **predicates: Predicate[K, V] | InContext[K, V, bool],
    ) -> dict[str, KStream[K, V]]:
        """Split the stream into branches with names: ``split(small=predicate, large=predicate)``.

        A record goes to the branch of the first ``predicate(key, value)`` that holds. One for which none
        holds goes to the branch that ``default`` names; without, it is dropped and counted as filtered.

        :param default: name of the branch of all other records.
        :param name: the node's name; its branches are called ``<name>-<branch>``. Numbered by default.
        :param predicates: branch name -> its predicate, tried in order.
        :return: branch name -> stream, in the order of the predicates, the default branch last.
        :raises TopologyError: there is no predicate, or ``default`` is no name of its own.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> numbers = builder.stream("numbers").split(
        ...     negative=lambda key, value: value < 0, even=lambda key, value: value % 2 == 0, default="odd"
        ... )
        >>> for name, branch in numbers.items():
        ...     branch.send_to(name)
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (-2, 1, 2, 3):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     {name: [record.value for record in driver.read_output(name)] for name in numbers}
        {'negative': [-2], 'even': [2], 'odd': [1, 3]}
        """
        if callable(name):
            raise TopologyError(
                f"split at {call_site()} has name={name!r}",
                fix="give a branch another name than 'name', which is an option",
            )
        if default is not None and (not isinstance(default, str) or not default or default in predicates):
            raise TopologyError(
                f"split at {call_site()} has default={default!r}, expected a name of its own",
                fix="default= names the branch of all other records: give a text that no predicate has; a "
                "branch with a predicate has another name than 'default'",
            )
        branches = branched(self._known, "split", [*predicates.items()], default=default, name=name)
        names = [*predicates, *([] if default is None else [default])]
        return Branches(zip(names, map(KStream, branches), strict=True))

    def merge(self, *others: KStream[K, V], name: str | None = None) -> KStream[K, V]:
        """Return the stream of this stream's and the others' records, in the order the task reads them.

        A serde that all streams share stays known; one that an operator of any of them lost is unknown.

        :param others: streams of the same builder; all have keys and values of the same serdes.
        :param name: the node's name in messages, counts and pictures; numbered by default.
        :raises TopologyError: there is no other, one is no stream of this builder or named twice, or two
            serdes differ.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.stream("web").merge(builder.stream("shop")).send_to("sales")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("web", key="a", value=1, timestamp_ms=0)
        ...     driver.pipe_input("shop", key="b", value=2, timestamp_ms=1)
        ...     [(record.key, record.value) for record in driver.read_output("sales")]
        [('a', 1), ('b', 2)]
        """
        for stream in others:
            check_partner(stream, KStream, self._known.graph, "merge")
        return KStream(merged([stream._known for stream in (self, *others)], name))

    @overload
    def map_values_async(
        self, mapper: AsyncValueMapper[V, VR], **options: Unpack[AsyncArguments]
    ) -> KStream[K, VR]: ...
    @overload
    def map_values_async(
        self, mapper: ThreadValueMapper[V, VR], **options: Unpack[ThreadArguments]
    ) -> KStream[K, VR]: ...
    def map_values_async(  # noqa: PLR0913  (the options of all such methods, as they are documented)
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

        Nodes below see the records in input order, in whatever order the answers come. Results, state and
        offsets are those of :meth:`map_values` with the same answers, exactly once; the calls themselves are
        repeated after a crash (``docs/explanation/async.md``).

        A mapper that declares a parameter ``context`` beside the value is given a
        :class:`~airflow_kstreams.streams.CallContext`; one that declares ``resource`` gets the entered
        resource.

        :param mapper: a coroutine function; with ``threads``, a plain one.
        :param max_in_flight: most calls of a task that run at once.
        :param order: ``partition``: any calls run side by side; their effects may overtake each other.
            ``key``: at most one call of a key at a time, in input order. ``unordered``: sinks may also write
            topics of yours in any order.
        :param timeout_ms: milliseconds after which a call is cancelled and fails with ``CallTimeoutError``;
            it may take effect all the same. Must be less than ``run.stall.timeout.ms``.
        :param retry: policy by which failed calls are repeated, while their records are parked; needs
            ``name``. By default no call is repeated.
        :param threads: True runs calls on threads, ``num.threads.per.task`` for all such nodes of a task.
        :param resource: function that makes an asynchronous context manager, as an HTTP session or a pool of
            connections is; each task enters it once, before the first record, and leaves it at its end.
        :param name: the node's name in messages, idempotency keys and the retry topic; numbered by default.
        :raises TopologyError: the mapper is no such function, an option is not valid, or ``retry`` lacks a
            name or a serde.

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
        options = CallArguments(
            max_in_flight=max_in_flight,
            order=order,
            timeout_ms=timeout_ms,
            retry=retry,
            resource=resource,
            name=name,
        )
        return KStream(called(self._known, MAP_VALUES, threads, options, mapper=mapper))

    @overload
    def map_async(
        self, mapper: AsyncKeyValueMapper[K, V, KR, VR], **options: Unpack[AsyncArguments]
    ) -> KStream[KR, VR]: ...
    @overload
    def map_async(
        self, mapper: ThreadKeyValueMapper[K, V, KR, VR], **options: Unpack[ThreadArguments]
    ) -> KStream[KR, VR]: ...
    def map_async(
        self, mapper: AsyncFunction, *, threads: bool = False, **options: Unpack[CallArguments]
    ) -> KStream:
        """Replace each record by the answer of ``await mapper(key, value)``, a pair of key and value.

        Calls, order and options are those of :meth:`map_values_async`.

        :param options: any of ``max_in_flight``, ``order``, ``timeout_ms``, ``retry``, ``resource``,
            ``name``.

        >>> async def swapped(key, value):
        ...     return value, key
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("words").map_async(swapped).send_to("swapped")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("words", key="a", value="ant", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("swapped")]
        [('ant', 'a')]
        """
        return KStream(called(self._known, MAP, threads, options, mapper=mapper))

    @overload
    def filter_async(
        self, predicate: AsyncPredicate[K, V], **options: Unpack[AsyncArguments]
    ) -> KStream[K, V]: ...
    @overload
    def filter_async(
        self, predicate: ThreadPredicate[K, V], **options: Unpack[ThreadArguments]
    ) -> KStream[K, V]: ...
    def filter_async(
        self, predicate: AsyncFunction, *, threads: bool = False, **options: Unpack[CallArguments]
    ) -> KStream:
        """Keep the records for which ``await predicate(key, value)`` holds.

        Calls, order and options are those of :meth:`map_values_async`.

        :param options: any of ``max_in_flight``, ``order``, ``timeout_ms``, ``retry``, ``resource``,
            ``name``.

        >>> async def is_large(key, value):
        ...     return value > 1
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.stream("numbers").filter_async(is_large).send_to("large")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_records("numbers", [("a", 1, 0), ("a", 2, 0)])
        ...     [record.value for record in driver.read_output("large")]
        [2]
        """
        return KStream(called(self._known, FILTER, threads, options, predicate=predicate))

    @overload
    def flat_map_values_async(
        self, mapper: AsyncFlatValueMapper[V, VR], **options: Unpack[AsyncArguments]
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values_async(
        self, mapper: ThreadFlatValueMapper[V, VR], **options: Unpack[ThreadArguments]
    ) -> KStream[K, VR]: ...
    def flat_map_values_async(
        self, mapper: AsyncFunction, *, threads: bool = False, **options: Unpack[CallArguments]
    ) -> KStream:
        """Replace each value by the values that ``await mapper(value)`` returns, each under the same key.

        Calls, order and options are those of :meth:`map_values_async`.

        :param options: any of ``max_in_flight``, ``order``, ``timeout_ms``, ``retry``, ``resource``,
            ``name``.

        >>> async def words(line):
        ...     return line.split()
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("lines").flat_map_values_async(words).send_to("words")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("lines", key="a", value="an ox", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("words")]
        [('a', 'an'), ('a', 'ox')]
        """
        return KStream(called(self._known, FLAT_MAP_VALUES, threads, options, mapper=mapper))

    @overload
    def foreach_async(self, action: AsyncAction[K, V], **options: Unpack[AsyncArguments]) -> None: ...
    @overload
    def foreach_async(self, action: ThreadAction[K, V], **options: Unpack[ThreadArguments]) -> None: ...
    def foreach_async(
        self, action: AsyncFunction, *, threads: bool = False, **options: Unpack[CallArguments]
    ) -> None:
        """Await ``action(key, value)`` for each record, as the end of the stream; a topology with such an end
        needs no sink. The action's effects lie outside the transaction: an attempt that resumes after a crash
        calls it again for the records that it repeats, with the same ``context.idempotency_key``.

        Calls, order and options are those of :meth:`map_values_async`.

        :param options: any of ``max_in_flight``, ``order``, ``timeout_ms``, ``retry``, ``resource``,
            ``name``.

        >>> seen = []
        >>> async def note(key, value, *, context):
        ...     seen.append((value, context.idempotency_key))
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("words").foreach_async(note, name="note")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("words", key="a", value="ant", timestamp_ms=0)
        ...     seen
        [('ant', 'demo/words-0@0/test/note/0')]
        """
        called(self._known, FOREACH, threads, options, action=action)

    def process(
        self, processor_def: ProcessorDef[K, V, KR, VR], *stores: str | StoreSpec, name: str | None = None
    ) -> KStream[KR, VR]:
        """Run a processor on each record; what it forwards is the resulting stream.

        With ``num.threads.per.task`` above 1, a processor whose class says ``threads = True`` runs on those
        threads, see :class:`Processor`.

        :param processor_def: class or function that makes a new ``Processor`` for each task.
        :param stores: the stores that it may use, by name, or by spec to add them here.
        :param name: the node's name in messages, counts and pictures; numbered by default.
        :raises TopologyError: the definition cannot be called, or a store's name is taken.

        >>> class Latest(Processor):
        ...     def init(self, context):
        ...         self.context, self.store = context, context.state_store("latest")
        ...
        ...     def process(self, record):
        ...         self.context.forward(record.key, (self.store.get(record.key), record.value))
        ...         self.store.put(record.key, record.value)
        >>> latest = StoreSpec(name="latest", key_serde=serdes.string(), value_serde=serdes.json())
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> builder.stream("numbers").process(Latest, latest).send_to("changes")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 5):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     [record.value for record in driver.read_output("changes")]
        [[None, 1], [1, 5]]
        """
        return KStream(processed(self._known, "process", processor_def, stores, name))

    def process_values(
        self, processor_def: ProcessorDef[K, V, K, VR], *stores: str | StoreSpec, name: str | None = None
    ) -> KStream[K, VR]:
        """Run a processor that keeps keys, so a group or join of its results repartitions nothing.

        All that :meth:`process` says holds, but what it forwards must have the key of the record that it
        processes, and it forwards in ``process`` alone: anything else ends the task with an error that names
        record and node. It runs on the task's own thread, even if its class says ``threads = True``. A record
        that it dates back by ``forward(timestamp_ms=...)`` further than the grace is late in windows below,
        whose stream time does not follow it; behind :meth:`set_timestamp` it does.

        :param processor_def: class or function that makes a new ``Processor`` for each task.
        :param stores: the stores that it may use, by name, or by spec to add them here.
        :param name: the node's name in messages, counts and pictures; numbered by default.
        :raises TopologyError: the definition cannot be called, or a store's name is taken.

        >>> class Change(Processor):
        ...     def init(self, context):
        ...         self.context, self.store = context, context.state_store("last")
        ...
        ...     def process(self, record):
        ...         self.context.forward(record.key, record.value - (self.store.get(record.key) or 0))
        ...         self.store.put(record.key, record.value)
        >>> last = StoreSpec(name="last", key_serde=serdes.string(), value_serde=serdes.int64())
        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> changes = builder.stream("levels").process_values(Change, last)
        >>> sums = changes.group_by_key().reduce(lambda total, change: total + change, store="sums")
        >>> topology = builder.build()
        >>> topology.internal_topics
        ()
        >>> with TopologyTestDriver(topology, application_id="demo") as driver:
        ...     for value in (5, 9):
        ...         driver.pipe_input("levels", key="a", value=value, timestamp_ms=0)
        ...     dict(driver.store("sums").all())
        {'a': 9}
        """
        return KStream(processed(self._known, "process_values", processor_def, stores, name, keeps_keys=True))

    def process_async(
        self,
        processor_def: AsyncProcessorDef[K, V, KR, VR],
        *stores: Never,
        threads: bool = False,
        **options: Unpack[CallArguments],
    ) -> KStream[KR, VR]:
        """Run a processor on each record, calls for several records at once; what it forwards is the
        resulting stream, in the order of the records.

        Calls, order and options are those of :meth:`map_values_async`; a call's answer is what it forwards.

        :param processor_def: class or function that makes a new :class:`AsyncProcessor` for each task. Its
            ``process`` is written with ``async def``; with ``threads``, with ``def``.
        :param stores: must be empty, as calls have no store; any store is refused by name.
        :param options: any of ``max_in_flight``, ``order``, ``timeout_ms``, ``retry``, ``resource``,
            ``name``.
        :raises TopologyError: the definition makes no such processor, an option is not valid, or ``retry``
            lacks a name or a serde.

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
        return KStream(processed_async(self._known, processor_def, stores, threads, options))

    def send_to(
        self,
        topic: str,
        *,
        key_serde: Writes[K] | None = None,
        value_serde: Writes[V] | None = None,
        partitioner: Partitioner[K, V] | None = None,
        name: str | None = None,
    ) -> None:
        """Write the stream to a topic, which must exist when a run begins.

        :param key_serde: serde of keys; needed after an operator that changed the key, unless the builder has
            a default.
        :param value_serde: serde of values; needed after an operator that changed the value, unless the
            builder has a default.
        :param partitioner: function of its arguments alone: ``partitioner(topic, key, value, partitions)``
            gives the partition of each record, from 0 to ``partitions - 1``, or None to leave it to the key.
            By default the key decides.
        :param name: the node's name in messages, counts and pictures; numbered by default.
        :raises TopologyError: it is no topic's name, a serde is missing, or the partitioner is no function.
            ``build`` refuses a partitioner where the topology groups, joins or keeps a table of what it reads
            from the topic.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> lengths = builder.stream("words").map_values(len)
        >>> lengths.send_to("lengths", value_serde=serdes.int64())
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("words", key="a", value="ant", timestamp_ms=5)
        ...     driver.read_output("lengths")
        [OutputRecord(key='a', value=3, timestamp_ms=5, headers=[], partition=0)]
        """
        check_topic(topic, "send_to")
        keys, values = cast("Serde | None", key_serde), cast("Serde | None", value_serde)
        self._known.sent_to(topic, keys, values, f"send_to({topic!r})", partitioner=partitioner, name=name)

    def send_to_table(
        self,
        table: DeltaTable | IcebergTable,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> None:
        """Write a row to a table for each record, as the end of the stream.

        Needs ``processing.guarantee=exactly_once``, and a run with an end: each finished run is one snapshot
        of the table, whatever fails in between.

        With ``mode="upsert"``, the table has one row for each key: that of the key's last record; a None in
        place of a value deletes it. If an operator may have changed the key, the stream goes through a
        repartition topic first, so that one task has all records of a key, in their order. A record without
        key has no row, as one whose value does not fit.

        :param table: the table: ``IcebergTable(...)`` or ``DeltaTable(...)``.
        :param key_serde: serde of keys, for the type of ``key_column`` and for the repartition topic; may be
            left out where the stream's is known, or the builder has a default.
        :param value_serde: serde of values, for the repartition topic; may be left out likewise.
        :param name: the node's name in messages, counts and pictures; numbered by default. Also part of the
            repartition topic's name, ``<application id>-<name>-repartition``, which is made of the table's
            name by default.
        :raises TopologyError: it is no table, or a serde is missing; ``build`` refuses two streams to one
            table.

        >>> from dataclasses import dataclass
        >>> from airflow_kstreams.streams import IcebergTable
        >>> @dataclass
        ... class Order:
        ...     item: str
        ...     count: int
        >>> builder = KStreamBuilder(default_key_serde=serdes.string())
        >>> orders = builder.stream("orders", value_serde=serdes.json(Order))
        >>> orders.send_to_table(IcebergTable("shop.orders", row=Order))
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("orders", key="a", value=Order("tea", 2), timestamp_ms=5)
        ...     driver.read_table("shop.orders")
        [{'item': 'tea', 'count': 2}]
        """
        if not isinstance(table, DeltaTable | IcebergTable):
            raise TopologyError(
                f"send_to_table at {call_site()} is given {type(table).__name__}, expected a table",
                fix='give e.g. IcebergTable("flights.carriers", row=Carrier)',
            )
        stream = self._known.given(
            "send_to_table", cast("Serde | None", key_serde), cast("Serde | None", value_serde)
        )
        write_rows(stream, table, name)

    def through(
        self,
        topic: str,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        partitioner: Partitioner[K, V] | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Write the stream to a topic of yours, and return the stream of the records read from it, which are
        partitioned anew.

        :param topic: name of the topic, which must exist when a run begins.
        :param key_serde: as in :meth:`send_to`.
        :param value_serde: as in :meth:`send_to`.
        :param partitioner: as in :meth:`send_to`.
        :param name: name of the node that writes; numbered by default.
        :raises TopologyError: a serde is missing, or the topic is read with other serdes already.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> words = builder.stream("words").select_key(lambda key, value: value[0])
        >>> table = words.through("by-letter").group_by_key().count(store="counts")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in ("ant", "ape", "bee"):
        ...         driver.pipe_input("words", key="a", value=value, timestamp_ms=0)
        ...     dict(driver.store("counts").all()), len(driver.read_output("by-letter"))
        ({'a': 2, 'b': 1}, 3)
        """
        check_topic(topic, "through")
        known = self._known
        key, value = known.sent_to(
            topic, key_serde, value_serde, f"through({topic!r})", partitioner=partitioner, name=name
        )
        node = known.graph.source((topic,), key, value)
        serdes = Serdes(key=key, value=value)
        return KStream(KnownStream(graph=known.graph, node=node, serdes=serdes, reads=(topic,)))

    @options_by_name(
        fix="give the number of partitions, repartition(8), and options by name; groups and joins "
        "repartition by themselves"
    )
    def repartition(
        self,
        partitions: int,
        *,
        name: str | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
    ) -> KStream[K, V]:
        """Write the stream to a topic of the engine's with a number of partitions of its own, and return the
        stream of the records read from it.

        All nodes below, with their state, then have that many tasks, however many partitions the input has or
        gains. Keys lie where their new bytes put them, so a group or join of the result repartitions nothing
        more. Records without key are dropped and counted, as in Kafka Streams, unless a left or outer join
        lies behind, which takes them; :meth:`through` keeps them.

        :param partitions: number of the topic's partitions. A run that finds the topic with another number is
            refused: to change it takes a reset.
        :param name: part of the topic's name, ``<application id>-<name>-repartition``; by default made of the
            topics that the stream reads.
        :param key_serde: as in :meth:`send_to`.
        :param value_serde: as in :meth:`send_to`.
        :raises TopologyError: it is no number of partitions, a serde is missing, or another stream was
            repartitioned under the name.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> words = builder.stream("words").repartition(4, name="spread")
        >>> table = words.group_by_key().count(store="counts")
        >>> builder.build().plan("app").repartition_topics
        {'app-spread-repartition': 4}
        """
        check_partitions(partitions, "repartition")
        return KStream(self._known.repartitioned(partitions, name, key_serde, value_serde))

    def group_by_key(
        self,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K, V]:
        """Group the records by their key, through a repartition topic if an operator may have changed it.

        :param key_serde: serde of keys; needed after an operator that changed the key, unless the builder has
            a default.
        :param value_serde: serde of values; needed to repartition after an operator that changed the value,
            unless the builder has a default.
        :param name: part of the repartition topic's name, ``<application id>-<name>-repartition``; all folds
            of the group then share this topic. By default each store has a topic of its own.
        :return: the group, to be folded into a table.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> totals = builder.stream("sales").group_by_key().reduce(lambda total, value: total + value)
        >>> totals.to_stream().send_to("totals")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (5, 7):
        ...         driver.pipe_input("sales", key="a", value=value, timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("totals")]
        [('a', 5), ('a', 12)]
        """
        check_name(name)
        stream = self._known.given("group_by_key", key_serde, value_serde)
        return KGroupedStream(GroupedRecords(stream=stream, name=name, call="group_by_key"))

    def group_by(
        self,
        selector: GroupSelector[K, V, KR],
        *,
        key_serde: Serde[KR] | None = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[KR, V]:
        """Group the records by ``selector(key, value)``, through a repartition topic.

        :param selector: function that gives the group's key; a record for which it gives None is in no group:
            it is dropped and counted.
        :param key_serde: serde of the new key; may be left out if the builder has a default.
        :param value_serde: as in :meth:`group_by_key`.
        :param name: as in :meth:`group_by_key`; also the name of the node that selects the key.
        :return: the group, to be folded into a table.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> by_letter = builder.stream("words").group_by(lambda key, value: value[0])
        >>> counts = by_letter.count(store="counts")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in ("ant", "ape", "bee"):
        ...         driver.pipe_input("words", key=None, value=value, timestamp_ms=0)
        ...     dict(driver.store("counts").all())
        {'a': 2, 'b': 1}
        """
        check_functions("group_by", selector=selector)
        node = self._known.graph.selected(self._known.node, selector, name)
        stream = self._known.at(node).with_new_key("group_by").given("group_by", key_serde, value_serde)
        return KGroupedStream(GroupedRecords(stream=stream, name=name, call="group_by"))

    def to_table(
        self,
        *,
        store: StoreArgument[K, V] = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Return the stream as a table: the value of each key's newest record; a null value deletes the key.

        Records without key are dropped and counted. If an operator may have changed the key, the stream goes
        through a repartition topic. The newest record is the one that was read last, whatever its timestamp.

        :param store: the store's name, or its whole spec; unless given, ``<topics>-to-table``.
        :param key_serde: serde of keys; needed after an operator that changed the key, unless the builder has
            a default.
        :param value_serde: serde of values; needed after an operator that changed the value, unless the
            builder has a default.
        :param name: the node's name, and part of the repartition topic's, ``<application
            id>-<name>-repartition``; by default the node is numbered, and the topic called after the store.
        :raises TopologyError: a serde is missing, the store's name is taken or its keys have another serde.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> moves = builder.stream("moves").select_key(lambda key, value: value.split()[0])
        >>> places = moves.map_values(lambda value: value.split()[1]).to_table(store="places")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in ("ann JFK", "bob SFO", "ann LAX"):
        ...         driver.pipe_input("moves", key=None, value=value, timestamp_ms=0)
        ...     dict(driver.store("places").all())
        {'ann': 'LAX', 'bob': 'SFO'}
        """
        return KTable(table_of(self._known, store, key_serde, value_serde, name))

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: ValueJoiner[V, VO, VR],
        **options: Unpack[TableJoinOptions[V]],
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[KR, VO],
        joiner: ValueJoiner[V, VO, VR],
        *,
        key: GlobalKeySelector[K, V, KR],
        **options: Unpack[TableJoinOptions[V]],
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO, K], VR],
        **options: Unpack[TableJoinOptions[V]],
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[KR, VO],
        joiner: Callable[[V, VO, K], VR],
        *,
        key: GlobalKeySelector[K, V, KR],
        **options: Unpack[TableJoinOptions[V]],
    ) -> KStream[K, VR]: ...
    @options_by_name(fix=_STREAM_JOINS)
    def join(
        self,
        other: KTable | GlobalKTable,
        joiner: Callable[..., Any],
        *,
        key: GlobalKeySelector | None = None,
        value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream:
        """Join each record with the table's value of its key: ``joiner(value, table_value)``.

        A record whose key the table does not hold gives nothing, nor does a change of the table. Results have
        the record's key and timestamp. Both sides need equal partition counts; a stream whose key may have
        changed goes through a repartition topic. With a global table, each record is joined with the entry
        that it names; see :meth:`KStreamBuilder.global_table`.

        :param joiner: function that returns a new value and changes neither argument: the second belongs to
            the table. If it declares a parameter ``key``, it is given the record's key by that name.
        :param key: with a global table, a function: ``key(key, value)`` gives the table's key for a record,
            None for no entry.
        :param value_serde: serde of this stream's values; needed to repartition it after an operator that
            changed the value.
        :param name: the node's name, and part of the repartition topic's,
            ``<application id>-<name>-repartition``.
        :raises TopologyError: the table is of another builder or key serde, or a serde is missing.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> airlines = builder.table("airlines")
        >>> flights = builder.stream("flights")
        >>> flights.join(airlines, lambda flight, airline: f"{flight} of {airline}").send_to("named")
        >>> flights.left_join(airlines, lambda flight, airline: f"{flight} of {airline}").send_to("all")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("airlines", key="UA", value="United", timestamp_ms=0)
        ...     driver.pipe_input("flights", key="UA", value="UA15", timestamp_ms=1)
        ...     driver.pipe_input("flights", key="XX", value="XX1", timestamp_ms=2)
        ...     for topic in ("named", "all"):
        ...         [record.value for record in driver.read_output(topic)]
        ['UA15 of United']
        ['UA15 of United', 'XX1 of None']
        """
        return self._join("join", other, joiner, value_serde, name, key)

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: ValueJoiner[V, VO | None, VR],
        **options: Unpack[TableJoinOptions[V]],
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[KR, VO],
        joiner: ValueJoiner[V, VO | None, VR],
        *,
        key: GlobalKeySelector[K, V, KR],
        **options: Unpack[TableJoinOptions[V]],
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None, K], VR],
        **options: Unpack[TableJoinOptions[V]],
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[KR, VO],
        joiner: Callable[[V, VO | None, K], VR],
        *,
        key: GlobalKeySelector[K, V, KR],
        **options: Unpack[TableJoinOptions[V]],
    ) -> KStream[K, VR]: ...
    @options_by_name(fix=_STREAM_JOINS)
    def left_join(
        self,
        other: KTable | GlobalKTable,
        joiner: Callable[..., Any],
        *,
        key: GlobalKeySelector | None = None,
        value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream:
        """Join as :meth:`join` does, and a record whose key the table does not hold with None."""
        return self._join("left_join", other, joiner, value_serde, name, key)

    def with_window(self, window: SlidingWindow, *, storage: Storage = "memory") -> WindowedKStream[K, V]:
        """Return the stream with a window, for joins with other windowed streams; it is a stream as before,
        and so is what operators make of it.

        :param window: the window; its size is the time for which elements wait for those of another stream.
        :param storage: place in which these elements are kept: ``memory``, or ``rocksdb`` for more than
            memory holds (needs the extra ``rocksdb``).
        :raises TopologyError: it is no ``SlidingWindow``, or there is no such storage.
        """
        check_join_window(window, storage)
        return WindowedKStream(WindowedStream(stream=self._known, window=window, storage=storage))

    def join_prior(self, other: Never, joiner: Never) -> KStream:
        """Refuse: only a stream with a window has this join, see :meth:`with_window`.

        :param other: a stream with a window.
        :param joiner: function that makes the result's value.
        :raises TopologyError: always.
        """
        raise _join_with_windows_error("join_prior", self._known, other)

    def outer_join(self, other: Never, joiner: Never) -> KStream:
        """Refuse: only a stream with a window has this join, see :meth:`with_window`.

        :param other: a stream with a window.
        :param joiner: function that makes the result's value.
        :raises TopologyError: always.
        """
        raise _join_with_windows_error("outer_join", self._known, other)

    def _join(
        self,
        call: str,
        table: KTable | GlobalKTable | KStream,
        joiner: Callable[..., Any],
        value_serde: Serde | None,
        name: str | None,
        key: GlobalKeySelector | None = None,
    ) -> KStream:
        if isinstance(table, KStream):
            raise no_window_error("it is called on", call, self._known)
        if isinstance(table, GlobalKTable):
            return KStream(join_global_table(call, self._known, table, joiner, key, name))
        if key is not None:
            raise key_in_vain_error(call)
        check_partner(table, KTable, self._known.graph, call)
        stream = self._known.given(call, None, value_serde)
        return KStream(join_table(call, stream, table._kept(call), joiner, name))


def _join_with_windows_error(call: str, known: KnownStream, other: object) -> TopologyError:
    if isinstance(other, KTable | GlobalKTable):
        return TopologyError(
            f"{call} at {call_site()} joins a stream with a table, which only join and left_join do",
            fix="use one of these; or make the stream a table, too: to_table()",
        )
    return no_window_error("it is called on", call, known)


class WindowedKStream(KStream[K, V]):
    """A stream that can be joined with another one; made by ``KStream.with_window``.

    Every operator of a stream works, and gives a stream without the window, as in KIP-28: the window is given
    right before the join.

    :param windowed: the stream's description, with its window and the storage of its elements.

    >>> from airflow_kstreams.streams import KStreamBuilder, SlidingWindow, serdes
    >>> from airflow_kstreams.testing import TopologyTestDriver
    >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    >>> orders = builder.stream("orders").with_window(SlidingWindow(size_ms=60_000))
    >>> payments = builder.stream("payments").with_window(SlidingWindow(size_ms=5_000))
    >>> orders.join(payments, lambda order, payment: [order, payment]).send_to("paid")
    >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
    ...     driver.pipe_input("orders", key="a", value="book", timestamp_ms=1_000)
    ...     driver.pipe_input("payments", key="a", value=20, timestamp_ms=61_000)
    ...     driver.pipe_input("payments", key="a", value=30, timestamp_ms=61_001)
    ...     [(record.key, record.value, record.timestamp_ms) for record in driver.read_output("paid")]
    [('a', ['book', 20], 61000)]
    """

    def __init__(self, windowed: WindowedStream) -> None:
        super().__init__(dataclasses.replace(windowed.stream, had_window=True))
        self._window = windowed.window
        self._storage = windowed.storage

    @overload
    def join(
        self,
        other: KTable[K, VO] | WindowedKStream[K, VO],
        joiner: ValueJoiner[V, VO, VR],
        **options: Unpack[StreamJoinOptions[K, V, VO]],
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[KR, VO],
        joiner: ValueJoiner[V, VO, VR],
        *,
        key: GlobalKeySelector[K, V, KR],
        **options: Unpack[TableJoinOptions[V]],
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: WindowedKStream[K, VO] | KTable[K, VO],
        joiner: Callable[[V, VO, K], VR],
        **options: Unpack[StreamJoinOptions[K, V, VO]],
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[KR, VO],
        joiner: Callable[[V, VO, K], VR],
        *,
        key: GlobalKeySelector[K, V, KR],
        **options: Unpack[TableJoinOptions[V]],
    ) -> KStream[K, VR]: ...
    @options_by_name(fix=_STREAM_JOINS)
    def join(
        self,
        other: KTable | GlobalKTable | WindowedKStream,
        joiner: Callable[..., Any],
        *,
        key: GlobalKeySelector | None = None,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream:
        """Join each element of either stream with those of the other that lie in its window and arrived
        before it: ``joiner(value, other_value)``, whichever arrived last.

        An element arriving at t meets those of its key from t minus the other stream's ``size_ms`` to t plus
        its own, oldest first. Results have the key and the larger one of both times. Elements without key or
        value, and those that arrive later than their window plus grace, are dropped and counted. With a
        table, this is ``KStream.join``.

        :param joiner: function that returns a new value and changes neither argument. If it declares a
            parameter ``key``, it is given the key by that name.
        :param key: with a global table, as for ``KStream.join``.
        :param key_serde: serde of both streams' keys; needed where an operator changed both.
        :param value_serde: serde of this stream's values; needed after an operator that changed the value.
        :param other_value_serde: serde of the other stream's values; needed after an operator that changed
            them.
        :param name: name of the join: the nodes are then called ``<name>-this-join``, ``<name>-other-join``
            and ``<name>-merge``, the stores ``<name>-left`` and ``<name>-right``, with the changelogs
            ``<application id>-<store>-changelog``, and where a key changed, the repartition topics
            ``<application id>-<store>-repartition``. By default the stores are called after the topics that
            the two streams read: ``<this>-<other>-join-left``, and so on.
        :raises TopologyError: the other is no windowed stream or table of the same builder, the key serdes
            differ, a serde is missing, or the name is taken.
        """
        options = JoinOptions(key_serde, value_serde, other_value_serde, name)
        return self._join_any("join", other, joiner, options, key)

    @overload
    def left_join(
        self,
        other: KTable[K, VO] | WindowedKStream[K, VO],
        joiner: ValueJoiner[V, VO | None, VR],
        **options: Unpack[StreamJoinOptions[K, V, VO]],
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[KR, VO],
        joiner: ValueJoiner[V, VO | None, VR],
        *,
        key: GlobalKeySelector[K, V, KR],
        **options: Unpack[TableJoinOptions[V]],
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: WindowedKStream[K, VO] | KTable[K, VO],
        joiner: Callable[[V, VO | None, K], VR],
        **options: Unpack[StreamJoinOptions[K, V, VO]],
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[KR, VO],
        joiner: Callable[[V, VO | None, K], VR],
        *,
        key: GlobalKeySelector[K, V, KR],
        **options: Unpack[TableJoinOptions[V]],
    ) -> KStream[K, VR]: ...
    @options_by_name(fix=_STREAM_JOINS)
    def left_join(
        self,
        other: KTable | GlobalKTable | WindowedKStream,
        joiner: Callable[..., Any],
        *,
        key: GlobalKeySelector | None = None,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream:
        """Join as :meth:`join` does, and each element of this stream that found no partner with None:
        ``joiner(value, None)``, with its own time, once its window is closed, so that none can come any more.

        An element of this stream that has no key is joined with None at once, as in Kafka Streams. This
        stream's window says what becomes of elements that still wait at the end of a run: see
        ``SlidingWindow.at_run_end``.
        """
        options = JoinOptions(key_serde, value_serde, other_value_serde, name)
        return self._join_any("left_join", other, joiner, options, key)

    @overload
    def outer_join(
        self,
        other: WindowedKStream[K, VO],
        joiner: ValueJoiner[V | None, VO | None, VR],
        **options: Unpack[StreamJoinOptions[K, V, VO]],
    ) -> KStream[K, VR]: ...
    @overload
    def outer_join(
        self,
        other: WindowedKStream[K, VO],
        joiner: Callable[[V | None, VO | None, K], VR],
        **options: Unpack[StreamJoinOptions[K, V, VO]],
    ) -> KStream[K, VR]: ...
    def outer_join(
        self,
        other: WindowedKStream,
        joiner: Callable[..., Any],
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream:
        """Join as :meth:`left_join` does, and each element of the other stream that found no partner, too:
        ``joiner(None, value)``; those without key at once.

        Each stream's window says what becomes of its elements that still wait at the end of a run.
        """
        options = JoinOptions(key_serde, value_serde, other_value_serde, name)
        return self._join_windowed("outer_join", other, joiner, options)

    @overload
    def join_prior(
        self,
        other: WindowedKStream[K, VO],
        joiner: ValueJoiner[V, VO, VR],
        **options: Unpack[StreamJoinOptions[K, V, VO]],
    ) -> KStream[K, VR]: ...
    @overload
    def join_prior(
        self,
        other: WindowedKStream[K, VO],
        joiner: Callable[[V, VO, K], VR],
        **options: Unpack[StreamJoinOptions[K, V, VO]],
    ) -> KStream[K, VR]: ...
    def join_prior(
        self,
        other: WindowedKStream,
        joiner: Callable[..., Any],
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_value_serde: Serde | None = None,
        name: str | None = None,
    ) -> KStream:
        """Join as :meth:`join` does, but only with elements whose time lies before that of the arriving one.

        Elements that arrive out of order therefore miss partners that :meth:`join` finds: the older one of
        two is never joined when it comes last.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> clicks = builder.stream("clicks").with_window(SlidingWindow(size_ms=10))
        >>> views = builder.stream("views").with_window(SlidingWindow(size_ms=10))
        >>> clicks.join_prior(views, lambda click, view: [click, view]).send_to("pairs")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("views", key="a", value="view", timestamp_ms=100)
        ...     driver.pipe_input("clicks", key="a", value="click", timestamp_ms=104)
        ...     driver.pipe_input("clicks", key="a", value="late click", timestamp_ms=98)
        ...     [record.value for record in driver.read_output("pairs")]
        [['click', 'view']]
        """
        options = JoinOptions(key_serde, value_serde, other_value_serde, name)
        return self._join_windowed("join_prior", other, joiner, options)

    def _join_any(
        self,
        call: JoinKind,
        other: KTable | GlobalKTable | WindowedKStream,
        joiner: Callable[..., Any],
        options: JoinOptions,
        key: GlobalKeySelector | None,
    ) -> KStream:
        if isinstance(other, KTable | GlobalKTable):
            name = other._known.kept_in[0].name if isinstance(other, KTable) else other.topic
            check_table_options(call, name, options)
            return self._join(call, other, joiner, options.value_serde, options.name, key)
        if key is not None:
            raise key_in_vain_error(call)
        return self._join_windowed(call, other, joiner, options)

    def _join_windowed(
        self, call: JoinKind, other: WindowedKStream, joiner: ValueJoiner, options: JoinOptions
    ) -> KStream:
        if type(other) is KStream:
            raise no_window_error("it is given", call, other._known)
        check_partner(other, WindowedKStream, self._known.graph, call)
        return KStream(join_streams(call, self._windowed(), other._windowed(), joiner, options))

    def _windowed(self) -> WindowedStream:
        return WindowedStream(stream=self._known, window=self._window, storage=self._storage)
