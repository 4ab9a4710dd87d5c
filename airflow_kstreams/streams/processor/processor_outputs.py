"""Passes the results of a processor to children and topics, on the task's own thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.inlining import Encoding
from airflow_kstreams.streams.graph.services import Forward, ProcessorServices
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.records.result_facts import checked_headers, checked_time
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.serde_checks import check_serdes


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTarget:
    """A topic that may be written.

    :param topic: real name.
    :param key_serde: used unless the caller names another.
    :param value_serde: used unless the caller names another.
    """

    topic: str
    key_serde: Serde
    value_serde: Serde

    def written_with(self, key_serde: Serde | None, value_serde: Serde | None) -> SendTarget:
        """Return the target with other serdes, where they are given.

        :raises TopologyError: one of them is no serde.
        """
        check_serdes("ProcessorContext.send", key_serde=key_serde, value_serde=value_serde)
        return SendTarget(
            topic=self.topic,
            key_serde=key_serde.bound(self.topic, "key") if key_serde else self.key_serde,
            value_serde=value_serde.bound(self.topic, "value") if value_serde else self.value_serde,
        )


class ProcessorOutput(NamedTuple):
    """A result that a processor forwards or sends.

    :param to: a child, all children, or a topic.
    :param timestamp_ms: timestamp of the result; None for that of the record being processed.
    :param headers: headers of the result; None for those of the record being processed.
    """

    to: Forward | SendTarget
    key: Any
    value: Any
    timestamp_ms: int | None
    headers: Headers | None


class ProcessorOutputs:
    """Passes results of one processor in one task to its children and to topics.

    :param services: services of the node.
    :param children: name -> hands a record to that child only.
    :ivar where: the processor, for messages.
    """

    __slots__ = ("_children", "_services", "_targets", "record_context", "where")

    def __init__(self, services: ProcessorServices, children: Mapping[str, Forward]) -> None:
        self._services = services
        self._children = children
        self._targets: dict[tuple[str, Serde | None, Serde | None], SendTarget] = {}
        self.record_context = services.record_context
        self.where = f"task {services.task_id}: processor {services.node!r}"

    def child(self, name: str) -> Forward:
        """Return the function that forwards to one child.

        :raises TopologyError: no child has that name.
        """
        try:
            return self._children[name]
        except KeyError:
            raise TopologyError(
                f"{self.where} has no child {name!r}",
                fix=f"forward to one of: {', '.join(self._children) or 'none, it has no children'}",
            ) from None

    def topic(self, name: str, key_serde: Serde | None, value_serde: Serde | None) -> SendTarget:
        """Return a topic that may be written by name.

        :raises TopologyError: the topic must not be written from here.
        """
        how = (name, key_serde, value_serde)
        target = self._targets.get(how)
        if target is None:
            found: SendTarget = self._services.send_target(name)
            target = self._targets[how] = found.written_with(key_serde, value_serde)
        return target

    def write(self, output: ProcessorOutput) -> None:
        """Forward a key and a value to children, or write them to a topic."""
        to, key, value, timestamp_ms, headers = output
        if isinstance(to, SendTarget):
            partition_bytes = to.key_serde.partition_bytes
            self._services.send(
                to.topic,
                None if key is None else _bytes(key, Encoding("key", to.topic, to.key_serde)),
                None if value is None else _bytes(value, Encoding("value", to.topic, to.value_serde)),
                None if key is None or partition_bytes is None else partition_bytes(key),
            )
            return
        context = self.record_context
        before = context.timestamp_ms, context.replaced_headers
        if timestamp_ms is not None:
            context.timestamp_ms = timestamp_ms
        if headers is not None:
            context.replaced_headers = headers
        try:
            to(key, value)
        finally:
            context.timestamp_ms, context.replaced_headers = before


def _bytes(given: Any, _encoding: Encoding) -> bytes:
    return _encoding.serde.serialize(given)


def output_of(
    to: Forward, key: Any, value: Any, timestamp_ms: int | None, headers: Headers | None
) -> ProcessorOutput:
    """Return a result to forward.

    :raises TypeError: the timestamp is not a whole number, or Kafka allows no such headers.
    :raises ValueError: the timestamp is negative, which in Kafka means none, or too large.
    """
    if timestamp_ms is not None:
        checked_time(timestamp_ms, "forward: timestamp_ms is {}")
    if headers is not None:
        headers = checked_headers(headers, "forward: headers are {}")
    return ProcessorOutput(to, key, value, timestamp_ms, headers)
