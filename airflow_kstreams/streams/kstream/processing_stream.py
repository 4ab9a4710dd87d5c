"""What a stream does by processors of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.hints.call_site import call_site
from airflow_kstreams.streams.hints.function_checks import shown_as
from airflow_kstreams.streams.kstream.arguments import check_used_stores
from airflow_kstreams.streams.kstream.changing_stream import ChangingStream
from airflow_kstreams.streams.kstream.known import KnownStream
from airflow_kstreams.streams.processor.definitions import check_processor_def
from airflow_kstreams.streams.processor.operator import ProcessorOperator
from airflow_kstreams.streams.processor.processor import ProcessorDef
from airflow_kstreams.streams.type_variables import KR, VR, K, V

if TYPE_CHECKING:
    from airflow_kstreams.streams.kstream.kstream import KStream


@shown_as("KStream")
class ProcessingStream(ChangingStream[K, V]):
    """The part of :class:`~airflow_kstreams.streams.KStream` that runs processors.

    :param known: what is known of it.
    """

    def process(
        self, processor_def: ProcessorDef[K, V, KR, VR], *stores: str | StoreSpec, name: str | None = None
    ) -> KStream[KR, VR]:
        """Run a processor on each record; what it forwards is the resulting stream.

        With ``num.threads.per.task`` above 1, a processor whose class says ``threads = True`` runs on those
        threads, see :class:`Processor`.

        :param processor_def: makes a new ``Processor`` for each task; a class will do.
        :param stores: the stores it may use, by name, or by spec to add them here.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
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
        known = self._processed("KSTREAM-PROCESSOR", "process", processor_def, stores, name)
        return self._retyped(known.with_new_key("process").with_new_value("process"))

    def process_values(
        self, processor_def: ProcessorDef[K, V, K, VR], *stores: str | StoreSpec, name: str | None = None
    ) -> KStream[K, VR]:
        """Run a processor that keeps keys: what groups or joins its results repartitions nothing for it.

        All that :meth:`process` says holds, but what it forwards must have the key of the record that it
        processes, and it forwards in ``process`` alone: anything else ends the task with an error that names
        record and node. It runs on the task's own thread, even if its class says ``threads = True``. What it
        dates back by ``forward(timestamp_ms=...)`` further than the grace is late for windows below, whose
        stream time does not follow; :meth:`set_timestamp` has them follow.

        :param processor_def: makes a new ``Processor`` for each task; a class will do.
        :param stores: the stores it may use, by name, or by spec to add them here.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
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
        known = self._processed(
            "KSTREAM-PROCESSVALUES", "process_values", processor_def, stores, name, keeps_keys=True
        )
        return self._retyped(known.with_new_value("process_values"))

    def _processed(
        self,
        kind: str,
        call: str,
        definition: ProcessorDef,
        stores: tuple[str | StoreSpec, ...],
        name: str | None,
        *,
        keeps_keys: bool = False,
    ) -> KnownStream:
        """Add a processor's node with its stores, and return the stream of its results, otherwise alike.

        :param kind: begins the name of a node that the user gave none.
        :param call: the DSL method, for messages.
        :raises TopologyError: the definition cannot be called, or a store's name is taken.
        """
        check_processor_def(definition, call, call_site())
        check_used_stores(stores, call)
        graph = self._known.graph
        names = [store if isinstance(store, str) else store.name for store in stores]
        for store in stores:
            if not isinstance(store, str):
                graph.topology.add_state_store(store)
        operator = ProcessorOperator(definition=definition, keeps_keys=keeps_keys)
        return self._known.at(graph.operator(kind, operator, self._known.node, names, name=name))
