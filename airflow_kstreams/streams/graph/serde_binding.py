"""Binds the serdes of a task's nodes and stores to the topic that they serve (see :meth:`Serde.bound`).

Rule: the serdes of a source know the topic they read, those of a sink the topic they write, and those of a
store its changelog. Operators that hold a store's spec get the bound one, so that the bytes of a key are the
same whether the operator or the store writes them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from airflow_kstreams.streams.graph.global_tables import GlobalTableDef
from airflow_kstreams.streams.graph.nodes import SinkNode, SourceNode
from airflow_kstreams.streams.graph.operator_traits import Operator
from airflow_kstreams.streams.graph.store_specs import StoreSpec
from airflow_kstreams.streams.serde.base import Serde, Side

_Holder = TypeVar("_Holder", bound=SourceNode | SinkNode | StoreSpec | GlobalTableDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class SerdeOfTopic:
    """A serde that an operator uses by itself, for what stands inside the records of an internal topic.

    :param topic: logical name.
    :param side: whether it is for keys or for values.
    """

    topic: str
    side: Side
    serde: Serde


def bound_to(topic: str, holder: _Holder) -> _Holder:
    """Return a source, sink or store spec with the serdes to use for a topic.

    :param topic: real name; a source of several topics is bound once for each.
    :raises ConfigError: what a serde needs is not installed or not configured.
    """
    key_serde = holder.key_serde.bound(topic, "key")
    value_serde = holder.value_serde.bound(topic, "value")
    if key_serde is holder.key_serde and value_serde is holder.value_serde:
        return holder
    return dataclasses.replace(holder, key_serde=key_serde, value_serde=value_serde)


def bound_operator(
    operator: Operator, specs: Mapping[str, StoreSpec], real_topic: Callable[[str], str]
) -> Operator:
    """Return an operator with bound specs and serdes in place of those that it, or an operator inside it, was
    defined with.

    :param specs: the bound specs of the task's stores, by name.
    :param real_topic: gives the real name of a topic of the topology.
    """
    unbound: Any = operator
    bound: dict[str, Any] = {}
    for field in dataclasses.fields(unbound) if dataclasses.is_dataclass(unbound) else ():
        held = getattr(operator, field.name)
        found = held
        if isinstance(held, StoreSpec):
            found = specs.get(held.name, held)
        elif isinstance(held, GlobalTableDef):
            found = bound_to(held.topic, held)
        elif isinstance(held, SerdeOfTopic):
            serde = held.serde.bound(real_topic(held.topic), held.side)
            found = held if serde is held.serde else dataclasses.replace(held, serde=serde)
        elif hasattr(type(held), "bind"):
            found = bound_operator(held, specs, real_topic)
        if found is not held:
            bound[field.name] = found
    return dataclasses.replace(unbound, **bound) if bound else operator
