"""What can be done with a stream alone, record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast, overload

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.nodes import Partitioner
from airflow_kstreams.streams.hints.call_site import call_site
from airflow_kstreams.streams.hints.function_checks import (
    check_functions,
    declares_context,
    options_by_name,
    shown_as,
)
from airflow_kstreams.streams.hints.java_names import answers_java_names
from airflow_kstreams.streams.kstream.arguments import check_topic
from airflow_kstreams.streams.kstream.branches import Branches, branched
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
)
from airflow_kstreams.streams.kstream.operators.map_batches import BatchFunction, map_batches_operator
from airflow_kstreams.streams.kstream.operators.stateless import (
    Action,
    FlatMapper,
    FlatValueMapper,
    KeySelector,
    KeyValueMapper,
    Predicate,
    Stateless,
    ValueMapper,
)
from airflow_kstreams.streams.kstream.processing_stream import ProcessingStream
from airflow_kstreams.streams.records.record_context import InContext, RecordContext
from airflow_kstreams.streams.type_variables import KR, VR, K, V

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_kstreams.streams.kstream.kstream import KStream
    from airflow_kstreams.streams.kstream.operators.map_batches import BatchSchema
    from airflow_kstreams.streams.serde.base import Serde, Writes


@answers_java_names
@shown_as("KStream")
class RecordStream(ProcessingStream[K, V]):
    """The part of :class:`~airflow_kstreams.streams.KStream` that meets no other stream, group or table.

    :param known: what is known of it.
    """

    def filter(self, predicate: Predicate[K, V] | InContext[K, V, bool], *, name: str | None = None) -> Self:
        """Keep the records for which ``predicate(key, value)`` holds.

        :param name: of the node, for messages, counts and pictures; numbered unless given.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.stream("numbers").filter(lambda key, value: value > 1).send_to("large")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2, 3):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     [record.value for record in driver.read_output("large")]
        [2, 3]
        """
        with_context = declares_context("filter", predicate=predicate)
        return self._behind(
            "KSTREAM-FILTER", Stateless(kind=FILTER, function=predicate, with_context=with_context), name
        )

    def filter_not(
        self, predicate: Predicate[K, V] | InContext[K, V, bool], *, name: str | None = None
    ) -> Self:
        """Drop the records for which ``predicate(key, value)`` holds, keep the others.

        :param name: of the node, for messages, counts and pictures; numbered unless given.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.stream("numbers").filter_not(lambda key, value: value > 1).send_to("small")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2, 3):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     [record.value for record in driver.read_output("small")]
        [1]
        """
        with_context = declares_context("filter_not", predicate=predicate)
        return self._behind(
            "KSTREAM-FILTER", Stateless(kind=FILTER_NOT, function=predicate, with_context=with_context), name
        )

    def peek(self, action: Action[K, V] | InContext[K, V, object], *, name: str | None = None) -> Self:
        """Call ``action(key, value)`` for each record, e.g. to log or count it, and pass the record on as it
        is.

        :param action: what it returns is ignored; an attempt that resumes after a crash calls it again.
        :param name: of the node, for messages, counts and pictures; numbered unless given.

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
        with_context = declares_context("peek", action=action)
        return self._behind(
            "KSTREAM-PEEK", Stateless(kind=PEEK, function=action, with_context=with_context), name
        )

    def foreach(self, action: Action[K, V] | InContext[K, V, object], *, name: str | None = None) -> None:
        """Call ``action(key, value)`` for each record, as the end of the stream; a topology with such an end
        needs no sink.

        What the action does lies outside the transaction: an attempt that resumes after a crash calls it
        again for the records that it repeats.

        :param action: what it returns is ignored; it runs where the task runs.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
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
        with_context = declares_context("foreach", action=action)
        self._known.behind(
            "KSTREAM-FOREACH", Stateless(kind=FOREACH, function=action, with_context=with_context), name
        )

    @overload
    def select_key(self, selector: KeySelector[K, V, KR], *, name: str | None = None) -> KStream[KR, V]: ...
    @overload
    def select_key(
        self, selector: Callable[[K, V, RecordContext], KR], *, name: str | None = None
    ) -> KStream[KR, V]: ...
    def select_key(self, selector: Callable[..., Any], *, name: str | None = None) -> KStream:
        """Replace each key by ``selector(key, value)``; a group or join of the result repartitions it.

        :param name: of the node, for messages, counts and pictures; numbered unless given.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("words").select_key(lambda key, value: value[0]).send_to("by-letter")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in ("ant", "bee"):
        ...         driver.pipe_input("words", key="a", value=value, timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("by-letter")]
        [('a', 'ant'), ('b', 'bee')]
        """
        with_context = declares_context("select_key", selector=selector)
        operator = Stateless(kind=SELECT_KEY, function=selector, with_context=with_context)
        return self._retyped(
            self._known.behind("KSTREAM-KEY-SELECT", operator, name).with_new_key("select_key")
        )

    @overload
    def map(self, mapper: KeyValueMapper[K, V, KR, VR], *, name: str | None = None) -> KStream[KR, VR]: ...
    @overload
    def map(
        self, mapper: Callable[[K, V, RecordContext], tuple[KR, VR]], *, name: str | None = None
    ) -> KStream[KR, VR]: ...
    def map(self, mapper: Callable[..., Any], *, name: str | None = None) -> KStream:
        """Replace each record by ``mapper(key, value)``, a pair of key and value.

        :param name: of the node, for messages, counts and pictures; numbered unless given.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("words").map(lambda key, value: (value, key)).send_to("swapped")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("words", key="a", value="ant", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("swapped")]
        [('ant', 'a')]
        """
        with_context = declares_context("map", mapper=mapper)
        return self._rekeyed(
            "KSTREAM-MAP", Stateless(kind=MAP, function=mapper, with_context=with_context), "map", name
        )

    @overload
    def map_values(self, mapper: ValueMapper[V, VR], *, name: str | None = None) -> KStream[K, VR]: ...
    @overload
    def map_values(
        self, mapper: Callable[[V, RecordContext], VR], *, name: str | None = None
    ) -> KStream[K, VR]: ...
    def map_values(self, mapper: Callable[..., Any], *, name: str | None = None) -> KStream:
        """Replace each value by ``mapper(value)``.

        :param name: of the node, for messages, counts and pictures; numbered unless given.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
        >>> builder.stream("numbers").map_values(lambda value: 2 * value).send_to("doubled")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     for value in (1, 2):
        ...         driver.pipe_input("numbers", key="a", value=value, timestamp_ms=0)
        ...     [record.value for record in driver.read_output("doubled")]
        [2, 4]
        """
        with_context = declares_context("map_values", mapper=mapper)
        return self._revalued(
            "KSTREAM-MAPVALUES",
            Stateless(kind=MAP_VALUES, function=mapper, with_context=with_context),
            "map_values",
            name,
        )

    @overload
    def flat_map(self, mapper: FlatMapper[K, V, KR, VR], *, name: str | None = None) -> KStream[KR, VR]: ...
    @overload
    def flat_map(
        self, mapper: Callable[[K, V, RecordContext], Iterable[tuple[KR, VR]]], *, name: str | None = None
    ) -> KStream[KR, VR]: ...
    def flat_map(self, mapper: Callable[..., Any], *, name: str | None = None) -> KStream:
        """Replace each record by the (key, value) pairs that ``mapper(key, value)`` yields.

        :param name: of the node, for messages, counts and pictures; numbered unless given.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> lines = builder.stream("lines")
        >>> words = lines.flat_map(lambda key, value: [(word[0], word) for word in value.split()])
        >>> words.send_to("words")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("lines", key=None, value="an ox", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("words")]
        [('a', 'an'), ('o', 'ox')]
        """
        with_context = declares_context("flat_map", mapper=mapper)
        return self._rekeyed(
            "KSTREAM-FLATMAP",
            Stateless(kind=FLAT_MAP, function=mapper, with_context=with_context),
            "flat_map",
            name,
        )

    @overload
    def flat_map_values(
        self, mapper: FlatValueMapper[V, VR], *, name: str | None = None
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values(
        self, mapper: Callable[[V, RecordContext], Iterable[VR]], *, name: str | None = None
    ) -> KStream[K, VR]: ...
    def flat_map_values(self, mapper: Callable[..., Any], *, name: str | None = None) -> KStream:
        """Replace each value by the values that ``mapper(value)`` yields, each under the same key.

        :param name: of the node, for messages, counts and pictures; numbered unless given.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        >>> builder.stream("lines").flat_map_values(str.split).send_to("words")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("lines", key="a", value="an ox", timestamp_ms=0)
        ...     [(record.key, record.value) for record in driver.read_output("words")]
        [('a', 'an'), ('a', 'ox')]
        """
        with_context = declares_context("flat_map_values", mapper=mapper)
        return self._revalued(
            "KSTREAM-FLATMAPVALUES",
            Stateless(kind=FLAT_MAP_VALUES, function=mapper, with_context=with_context),
            "flat_map_values",
            name,
        )

    def map_batches(
        self,
        function: BatchFunction,
        *,
        batch_size: int = 10_000,
        schema: BatchSchema | None = None,
        changes_key: bool = True,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Replace batches of records by ``function(batch)``, vectorised: a ``pyarrow.RecordBatch`` for a
        ``pyarrow.RecordBatch``.

        The columns of the batch it takes are ``key``, ``value`` (null for a record without) and
        ``timestamp_ms`` (int64), one row for each record in the order they came. A dict becomes a struct, a
        list a list; typed objects must be made dicts before, e.g. by ``map_values(msgspec.structs.asdict)``.
        Column types are inferred from each batch, so a field that is null throughout has Arrow's null type;
        give ``schema`` to have the same types in every batch.

        The batch it returns holds ``value``. Without a column ``key``, or ``timestamp_ms``, each row keeps
        that of the record in its place; if the number of rows changes, it must hold all three, as what
        ``batch.filter(...)`` returns does. Its rows become records in their order, as ``to_pylist`` has them.
        They belong to no record: headers are empty.

        A batch is cut at ``batch_size`` records and at every commit point. The task's commit points are then
        counted in records (``commit.every.records``), so batches, and with them results, are the same however
        often the task crashes. What follows this node sees records up to a batch late: by then stream time
        may have moved on, so put windows before it, or give them the grace. An error of the function fails
        the task, whatever the error policy is. ``TopologyTestDriver`` commits after each record: batches of
        one.

        :param function: depends on the batch alone; needs pyarrow wherever tasks run.
        :param batch_size: the most records of a batch, 1 or more.
        :param schema: a ``pyarrow.Schema`` of the columns ``key``, ``value`` and ``timestamp_ms`` (int64).
        :param changes_key: False promises that every result has the key of a record in its own place or
            partition: the key's serde stays known, and a group or join of the result repartitions nothing.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
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
        check_functions("map_batches", function=function)
        operator = map_batches_operator(function, batch_size, schema)
        # A table may change the objects that wait here for their batch.
        kept = self._known.with_own_values()
        mapped = self._known.at(kept.behind("KSTREAM-MAPBATCHES", operator, name).node).with_new_value(
            "map_batches"
        )
        return self._retyped(mapped.with_new_key("map_batches") if changes_key else mapped)

    def branch(
        self, *predicates: Predicate[K, V] | InContext[K, V, bool], name: str | None = None
    ) -> list[Self]:
        """Split the stream, one branch per predicate.

        A record goes to the branch of the first ``predicate(key, value)`` that holds; it is dropped if none
        does.

        :param predicates: one per branch, tried in order.
        :param name: of the node; those of the branches are ``<name>-1`` and so on. Numbered unless given.
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
        return [self._new(known) for known in branched(self._known, "branch", numbered, name=name)]

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
    ) -> dict[str, Self]:
        """Split the stream into branches with names: ``split(small=predicate, large=predicate)``.

        A record goes to the branch of the first ``predicate(key, value)`` that holds. One for which none
        holds goes to the branch that ``default`` names; without, it is dropped and counted as filtered.

        :param default: name of the branch of all other records.
        :param name: of the node; those of the branches are ``<name>-<branch>``. Numbered unless given.
        :param predicates: one per branch, by its name, tried in order.
        :return: the branches by name, in that order, the default one last.
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
        return Branches(zip(names, map(self._new, branches), strict=True))

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

        :param key_serde: needed after an operator that changed the key, unless the builder has a default.
        :param value_serde: needed after an operator that changed the value, unless the builder has a default.
        :param partitioner: ``partitioner(topic, key, value, partitions)`` gives the partition of each record,
            from 0 to ``partitions - 1``; None leaves it to the key, as without. It must depend on its
            arguments alone.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
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
