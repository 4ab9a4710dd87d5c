"""Finds out whether the entries of a store can follow their keys to another processor, for the plan."""

from __future__ import annotations

import re
import struct

import msgspec

from airflow_kstreams.streams.graph.components import Subtopology
from airflow_kstreams.streams.graph.nodes import ProcessorNode, SourceNode
from airflow_kstreams.streams.graph.store_specs import RetryStoreSpec, StoreSpec
from airflow_kstreams.streams.plan import EntryKeys, KeyForm
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.serde.internal_serdes import PREFIXED
from airflow_kstreams.streams.serde.key_forms import form_of

_TIME = struct.calcsize(">q")
#: Kind of store -> how many bytes its entries have behind the key's.
_BEHIND_KEY = {"key_value": 0, "window": _TIME, "session": 2 * _TIME, "join": 2 * _TIME, "versioned": _TIME}
#: Windowed formats -> how many bytes the window takes, behind those that decide the key's partition.
_WINDOWS = {"time_windowed(": _TIME, "session_windowed(": 2 * _TIME}
#: Formats in which every key has one form only.
_EXACT = frozenset({"bytes", "string", "int32", "int64", "double"})
#: Formats that write what they have read themselves as it was, and may write what others wrote otherwise.
_STEADY = frozenset({"json", "msgpack", "of"})
#: The end of a format's name, before its parameters.
_PARAMETERS = re.compile(r"[(),]")


def entry_keys(store: StoreSpec, sub: Subtopology, internal: frozenset[str]) -> EntryKeys:
    """Return the plan's statement on the keys of a store's entries.

    :param sub: the subtopology that it belongs to.
    :param internal: logical names of the repartition topics.
    """
    if isinstance(store, RetryStoreSpec):
        if store.keys_changed:
            return EntryKeys(unfit="its node gets other keys than those of the records that were consumed")
        return _of_serde(store.input_keys, 0, sub, internal, parked=True)
    users = [node for node in sub.nodes if isinstance(node, ProcessorNode) and store.name in node.stores]
    for node in users:
        of_user = node.operator.traits.stores_of_user
        if of_user == "all" or store.name in of_user:
            return EntryKeys(unfit=f"processor {node.name!r} writes it, under keys of its own choice")
    return _of_serde(store.key_serde, _BEHIND_KEY[store.type], sub, internal)


def _of_serde(
    serde: Serde, behind: int, sub: Subtopology, internal: frozenset[str], *, parked: bool = False
) -> EntryKeys:
    if serde.id.startswith(PREFIXED):
        return EntryKeys(prefixed=True)
    name, window_bytes = _without_windows(serde)
    behind += window_bytes
    written_by_us = internal.issuperset(sub.source_topics)
    kind = _PARAMETERS.split(name, maxsplit=1)[0]
    if kind in _EXACT or (written_by_us and kind in _STEADY):
        return EntryKeys(suffix=behind, parked=parked)
    return EntryKeys(
        unfit=f"its keys are in the format {serde.id}, which may write a key that was read in other bytes, "
        "whose partition is another one",
        suffix=behind,
        parked=parked,
        rewritten=True,
    )


def key_suffixes(sub: Subtopology) -> dict[str, int]:
    """Return logical topic of a source -> number of bytes at the end of its keys that do not decide their
    partition; absent if all bytes do.
    """
    sources = (node for node in sub.nodes if isinstance(node, SourceNode))
    return {
        topic: size
        for node in sources
        for topic in node.topics
        if (size := _without_windows(node.key_serde)[1])
    }


def key_forms(sub: Subtopology, internal: frozenset[str]) -> tuple[KeyForm, ...]:
    """Return the forms of the keys of its sources, see
    :class:`~airflow_kstreams.streams.plan.SubtopologyPlan`.

    :param internal: logical names of the repartition topics, which the engine alone writes.
    """
    found: list[tuple[KeyForm, list[str]]] = []
    for node in sub.nodes:
        if isinstance(node, SourceNode):
            topics = [topic for topic in node.topics if topic not in internal]
            form = form_of(node.key_serde) if topics else None
            if form is not None:
                same = next((topics_of for other, topics_of in found if other == form), None)
                if same is None:
                    found.append((form, topics))
                else:
                    same += topics
    return tuple(msgspec.structs.replace(form, topics=tuple(sorted(topics))) for form, topics in found)


def _without_windows(serde: Serde) -> tuple[str, int]:
    """Return the format of the key in a windowed one, and how many bytes the window takes."""
    name, behind = serde.id, 0
    for prefix, size in _WINDOWS.items():
        if name.startswith(prefix):
            name, behind = name.removeprefix(prefix), behind + size
    return name, behind
