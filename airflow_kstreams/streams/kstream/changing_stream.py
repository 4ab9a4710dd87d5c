"""What a stream changes of its records beside key and value: headers and timestamps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Self

from airflow_kstreams.streams.hints.function_checks import declares_context, shown_as
from airflow_kstreams.streams.kstream.calling_stream import CallingStream
from airflow_kstreams.streams.kstream.operators.function_kinds import SET_HEADERS, SET_TIMESTAMP
from airflow_kstreams.streams.kstream.operators.stateless import HeadersFunction, Stateless, TimestampFunction
from airflow_kstreams.streams.records.record_context import InContext
from airflow_kstreams.streams.type_variables import K, V


@shown_as("KStream")
class ChangingStream(CallingStream[K, V]):
    """The part of :class:`~airflow_kstreams.streams.KStream` that changes headers and timestamps.

    :param known: what is known of it.
    """

    def set_headers(
        self,
        function: HeadersFunction[K, V] | InContext[K, V, Sequence[tuple[str, bytes | None]]],
        *,
        name: str | None = None,
    ) -> Self:
        """Give each record the headers that ``function(key, value)`` returns, in place of those it has.

        They are what sinks below write, and what functions and processors below see. Results that time brings
        have no headers, nor have those of a cached table.

        :param function: returns a list of (name, bytes or None); to add a header, it declares a ``context``
            and returns ``[*context.headers, ("name", b"value")]``.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: it is no function, or the name is taken.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> builder.stream("orders").set_headers(lambda key, value: [("kind", b"order")]).send_to("all")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("orders", key="a", value=1, timestamp_ms=0, headers=[("old", b"")])
        ...     driver.read_output("all")[0].headers
        [('kind', b'order')]
        """
        with_context = declares_context("set_headers", function=function)
        return self._behind(
            "KSTREAM-SETHEADERS",
            Stateless(kind=SET_HEADERS, function=function, with_context=with_context),
            name,
        )

    def set_timestamp(
        self, function: TimestampFunction[K, V] | InContext[K, V, int], *, name: str | None = None
    ) -> Self:
        """Date each record by ``function(key, value)``, epoch milliseconds.

        It is what sinks below write, what tables note, and what functions and processors below see. Windows
        and joins of streams that follow go by the new times: where no operator changed the key, they stand
        behind a repartition topic all the same, since stream time is that of the records that a task reads. A
        topic that is read with other times than its own takes no node: ``stream(topic, timestamps=...)``.

        :param function: returns 0 or more; anything else fails the record as an error of this node.
        :param name: of the node, for messages, counts and pictures; numbered unless given.
        :raises TopologyError: it is no function, or the name is taken.

        >>> builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        >>> builder.stream("orders").set_timestamp(lambda key, value: value["at"]).send_to("dated")
        >>> with TopologyTestDriver(builder.build(), application_id="demo") as driver:
        ...     driver.pipe_input("orders", key="a", value={"at": 5}, timestamp_ms=90)
        ...     driver.read_output("dated")[0].timestamp_ms
        5
        """
        with_context = declares_context("set_timestamp", function=function)
        operator = Stateless(kind=SET_TIMESTAMP, function=function, with_context=with_context)
        known = self._known.behind("KSTREAM-SETTIMESTAMP", operator, name)
        return self._new(dataclasses.replace(known, redated=True))
