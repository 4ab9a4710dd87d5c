"""Defines the plan, a topology reduced to plain data that can cross processes as JSON, and makes every
decoder of msgspec.

A plan holds topics, subtopologies and stores under the application's real topic names, as the run protocol
needs them, and no function. ``batch/`` works from plans only, so it never loads user code.

Rule of decoders: one thread at a time makes one. msgspec analyses a type when it is first decoded, and stores
the analysis with the type before it is complete, so that types may refer to themselves. Another thread that
decodes the type meanwhile takes the incomplete analysis: the process dies of a segmentation fault (msgspec
0.22; seen in a driver two of whose jobs ended at the same moment). A finished decoder is safe in any number
of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, overload

import msgspec

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.naming.commands import reset_command, start_over_flags
from airflow_kstreams.streams.table_plan import TablePlan, table_label
from airflow_kstreams.streams.topic_patterns import match_all, matching, pattern_of, replaced

T = TypeVar("T")
#: The time at which a fold emits its windows: at each change, when they close, or also at the end of each
#: run.
GivenAt = Literal["change", "close", "run end"]

#: The most partitions, or tasks, that an application may have: what Kafka's documentation says of a whole
#: cluster. A larger number in a record of the engine's own was written by another program.
MOST_PARTITIONS = 200_000
#: Number of partitions, tasks or pieces that a record names and that a reader counts up to.
PartitionCount = Annotated[int, msgspec.Meta(ge=0, le=MOST_PARTITIONS)]
#: Name of a partition, ``topic-partition``.
PartitionName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,249}-[0-9]{1,9}$", max_length=260)]
#: Number of a subtopology, as text.
SubtopologyNumber = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,5})$", max_length=6)]
#: Id of a task, ``<subtopology>_<group>``.
TaskName = Annotated[str, msgspec.Meta(pattern=r"^([0-9]{1,6}_[0-9]{1,6})?$", max_length=13)]
#: A moment that a calendar has, from year 1 to year 9999, epoch milliseconds.
Moment = Annotated[int, msgspec.Meta(ge=-62_135_596_800_000, le=253_402_300_799_999)]


def refuse_too_many(counts: Iterable[int]) -> None:
    """Refuse counts of partitions or tasks that no application has in all.

    :raises ValueError: their sum is larger than ``MOST_PARTITIONS``; msgspec makes a decoding error of it.
    """
    total = sum(counts)
    if total > MOST_PARTITIONS:
        raise ValueError(
            f"{total:,} partitions or tasks in all, an application has {MOST_PARTITIONS} at most"
        )


#: Making a decoder may run annotations, which may make decoders.
_lock = threading.RLock()


@overload
def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder of JSON.

    :param kind: type of the decoder's results: any type that msgspec knows.
    :raises TypeError: msgspec does not know the type.
    """
    with _lock:
        return msgspec.json.Decoder(kind)


@overload
def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return a decoder of MessagePack.

    :param kind: type of the decoder's results: any type that msgspec knows.
    :raises TypeError: msgspec does not know the type.
    """
    with _lock:
        return msgspec.msgpack.Decoder(kind)


@overload
def decode_json(data: bytes | str, kind: type[T]) -> T: ...
@overload
def decode_json(data: bytes | str, kind: Any = Any) -> Any: ...
def decode_json(data: bytes | str, kind: Any = Any) -> Any:
    """Decode JSON.

    :param kind: type of the result; it is kept as long as the process lives.
    :raises msgspec.MsgspecError: the data is no JSON, or not of this type.
    """
    return _json_decoder_of(kind).decode(data)


@overload
def convert(data: object, kind: type[T], *, strict: bool = True) -> T: ...
@overload
def convert(data: object, kind: Any, *, strict: bool = True) -> Any: ...
def convert(data: object, kind: Any, *, strict: bool = True) -> Any:
    """Turn plain lists, dicts, texts and numbers into a type.

    :param kind: type of the result; it is kept as long as the process lives.
    :param strict: True refuses a text in the place of a number; False converts it.
    :raises msgspec.ValidationError: the data is not of this type.
    """
    _json_decoder_of(kind)
    return msgspec.convert(data, kind, strict=strict)


@cache
def _json_decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    return json_decoder(kind)


class _RetryEntryKey(msgspec.Struct, array_like=True, frozen=True):
    """The part of a retry topic's key that placing needs."""

    key: bytes | None


_decode_parked = msgpack_decoder(_RetryEntryKey).decode
_LENGTH_BYTES = 4


class EntryKeys(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """The form of the keys of a changelog's entries, from which an entry's processor follows
    (``docs/explanation/growing.md``).

    Rule: an entry can follow its key to another processor only if the partition can be computed from the
    entry's own key: where records have their own key in the store, and its serde writes the bytes that it
    read. A plan has this form for each changelog, or the reason why there is none.

    :param unfit: reason why the partition cannot be computed from an entry's key; empty if it can.
    :param suffix: number of bytes behind those that decide the partition: windows, times, numbers.
    :param parked: True for the keys of a retry topic.
    :param prefixed: True if keys begin with the length of the bytes that decide the partition, then these
        bytes.
    :param rewritten: True if the serde may have read a key in other bytes than it writes, which is why the
        partition cannot be computed; the rest is true of what it writes.
    """

    unfit: str = ""
    suffix: int = 0
    parked: bool = False
    prefixed: bool = False
    rewritten: bool = False

    def placing(self, key: bytes) -> bytes | None:
        """Return the bytes that decide the partition of an entry's records; None if these have no key, and
        so may lie in any partition.

        :param key: key of the changelog's record.

        >>> EntryKeys(suffix=8).placing(b"JFK" + bytes(8))
        b'JFK'
        >>> EntryKeys(prefixed=True).placing(bytes([0, 0, 0, 3]) + b"JFK" + b"flight 7")
        b'JFK'
        """
        record_key: bytes | None = key
        if self.prefixed:
            return key[_LENGTH_BYTES : _LENGTH_BYTES + int.from_bytes(key[:_LENGTH_BYTES], "big")]
        if self.parked:
            record_key = _decode_parked(key).key
        if record_key is None or not self.suffix:
            return record_key
        return record_key[: -self.suffix]


#: A type as names and lists, see ``streams/serde/key_forms.py``.
TypeForm = str | list[Any]


class KeyForm(msgspec.Struct, frozen=True, array_like=True):
    """The form in which the engine writes the keys of topics: others may write equal keys in other bytes.

    :param topics: source topics, sorted.
    :param format: the format.
    :param sorts: whether the keys of dicts, and items of sets, are sorted.
    :param type: their type; None if they may be of any, or of one that has no description.
    """

    topics: tuple[str, ...]
    format: Literal["json", "msgpack"]
    sorts: bool
    type: TypeForm | None


class StreamTimePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stream time to which the end of a run brings a subtopology (``stream.time.advance``), as computed
    by :mod:`airflow_kstreams.streams.topology.time_limits`.

    :param behind_ms: milliseconds by which it lies behind the time of the run's end, since nodes upstream may
        hold results back for so long.
    :param by_name: topics and nodes that may give records of any date; stream time is advanced only if
        ``stream.time.advance.also`` names all of them.
    :param windowed: True if a fold by windows, or a join of streams, depends on it.
    :param extracted: topics that it reads whose records have the time that an extractor gives, not their own.
    """

    behind_ms: int = 0
    by_name: tuple[str, ...] = ()
    windowed: bool = False
    extracted: tuple[str, ...] = ()


#: Argument that gives a store its name: ``store="totals"``, ``name=`` of a join, or a whole ``StoreSpec``.
NamedBy = Literal["store", "name", "spec"]

#: Kind of a store that processors use.
PROCESSOR = "processor"


class MadeOf(msgspec.Struct, frozen=True, array_like=True):
    """What a store is made of. One that the user gave no name is called after it
    (``streams/kstream/lasting_names.py``).

    :param kind: kind of the operator that keeps it, e.g. ``count``.
    :param reads: topics that the operator reads; none for a store that processors use.
    :param name: the name that the store has by its argument: its own, or that of its join.
    :param by: argument that names it.
    :param named: True if the user gave the name.
    """

    kind: str
    reads: tuple[str, ...]
    name: str
    by: NamedBy = "store"
    named: bool = False

    @property
    def family(self) -> str:
        """``processor``, ``join``, ``table``, or ``fold``: stores of different families hold different
        entries.
        """
        if self.kind == PROCESSOR:
            return PROCESSOR
        if self.kind.endswith("table"):
            return "table"
        return "join" if "join" in self.kind else "fold"

    def same_as(self, other: MadeOf) -> bool:
        """Return True if both are made of the same, whatever their names."""
        return (self.kind, self.reads) == (other.kind, other.reads)

    def goes_on_with(self, state: MadeOf) -> bool:
        """Return True if a store of this may go on with state of that under its name: it is made of the
        same, or the user gave it the name of the state, so that it is to go on. A join whose sides are
        exchanged is neither: it would take one side's elements for the other's.
        """
        if self.same_as(state):
            return True
        exchanged = self.family == "join" and sorted(self.reads) == sorted(state.reads)
        return self.named and not exchanged

    def pin(self, name: str = "") -> str:
        """Return the argument that gives a store a name, e.g. ``store="orders-count"``.

        :param name: the name; by default the one that this store has.
        """
        given = f'"{name or self.name}"'
        return f"StoreSpec(name={given}, ...)" if self.by == "spec" else f"{self.by}={given}"

    def __str__(self) -> str:
        """Return e.g. ``count of orders``."""
        return f"{self.kind} of {', '.join(self.reads)}" if self.reads else f"store of a {self.kind}"


class GivenWindows(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The times at which the windows in a store reach readers.

    :param at: the time at which the fold emits them.
    :param may_go: True if a window may be deleted before it closes.
    """

    at: GivenAt
    may_go: bool = False

    def goes_on_as(self, other: GivenWindows) -> bool:
        """Return True if a later version of the topology may go on with the state of this one.

        Only a node that waits for windows to close emits those that are held back. A window that readers
        know already must be taken back when it is deleted, and a node that begins to wait does not know
        which windows readers know.
        """
        if self.at == other.at:
            return True
        return other.at != "change" and (self.at == "close" or not (self.may_go or other.may_go))

    def __str__(self) -> str:
        return {
            "change": "windows that are given as they change",
            "close": "windows that are given when they close",
            "run end": "windows that are given at the end of each run, and when they close",
        }[self.at]


class SubtopologyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One connected component of the topology.

    :param id: its number, in build order.
    :param sources: names of the topics it reads, sorted.
    :param sinks: names of the topics it writes (changelogs excluded), sorted.
    :param stores: names of its state stores, sorted.
    :param changelogs: changelog topic per logged store.
    :param changelog_configs: the user's settings of a changelog topic, by topic; absent if none.
    :param state_kinds: changelog topic -> meaning of its entries: the kind of store, and the windows of the
        fold, or the history of versions.
    :param given_windows: changelog topic of a fold by windows -> the times at which these are emitted.
    :param store_serdes: changelog topic -> the serdes of its store's keys and values, in words.
    :param copartitioned: groups of source topics that must have equal partition counts.
    :param keyed_together: groups of source topics and changelogs whose equal keys must lie in partitions of
        equal numbers.
    :param entry_keys: changelog topic -> form of the keys of its entries.
    :param key_suffixes: source topic -> number of bytes at the end of its keys that do not decide their
        partition; absent if all bytes do.
    :param key_forms: forms of the keys of source topics that others write, where equal keys may differ in
        their bytes; one form of several topics is there once.
    :param globals: topics of its global tables, sorted.
    :param stream_time: its stream time plan.
    :param made_of: store -> what it is made of; not of stores whose records wait for a later call.
    :param calling: names of its asynchronous nodes, in build order.
    :param tables: names of the tables that its tasks write files for, sorted; they list them in the topic of
        table files, which is among its sinks.
    :param lands: True for the one that reads the topic of table files. No task runs it: the coordinator
        seals the list, and finish commits it to the tables.
    """

    id: int
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    stores: tuple[str, ...] = ()
    changelogs: dict[str, str] = {}
    changelog_configs: dict[str, dict[str, str]] = {}
    copartitioned: tuple[tuple[str, ...], ...] = ()
    keyed_together: tuple[tuple[str, ...], ...] = ()
    state_kinds: dict[str, str] = {}
    given_windows: dict[str, GivenWindows] = {}
    store_serdes: dict[str, str] = {}
    entry_keys: dict[str, EntryKeys] = {}
    key_suffixes: dict[str, int] = {}
    key_forms: tuple[KeyForm, ...] = ()
    globals: tuple[str, ...] = ()
    stream_time: StreamTimePlan = StreamTimePlan()
    made_of: dict[str, MadeOf] = {}
    calling: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    lands: bool = False

    @property
    def written(self) -> tuple[str, ...]:
        """The topics that it writes, then the tables, each as ``table:<name>``."""
        return (*self.sinks, *map(table_label, self.tables))


def refuse_unknown_subtopology(application_id: str, subtopology: int, known: Collection[int]) -> None:
    """Refuse the id of a subtopology that an application's topology does not have.

    :param known: ids of the application's subtopologies.
    :raises ConfigError: the id is not among them.
    """
    if subtopology not in known:
        raise ConfigError(
            f"application {application_id!r} has no subtopology {subtopology}",
            fix=f"use one of {', '.join(map(str, known))} (airflow-kstreams describe shows them)",
        )


class TopologyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The whole topology of one application.

    :param application_id: the application; also its consumer group.
    :param topology_hash: hash of node names, types, topics, serde ids and stores, never of function bodies.
    :param subtopologies: the subtopologies in topological order: every writer of an intermediate topic comes
        before its readers.
    :param repartition_topics: internal topics to create, with a fixed partition count or None for
        "as many as the largest source of the subtopology that writes it".
    :param partition_grouper: id of the user's own partition grouper; empty for the default, equal ids
        together.
    :param patterns: placeholder of a source's pattern among the topics -> the matching topics in its place;
        empty until a run begins. See ``streams/topic_patterns.py``.
    :param gives_up: True if some node sends records to the dead-letter topic after their last call.
    :param fed_by: repartition topic -> the topics that its records are made of, sorted: inputs, also those of
        patterns by their placeholders, and the user's own topics between subtopologies.
    :param purposes: node -> what it does, and the user's line that made it; no part of the hash.
    :param tables: the tables that it writes to, by name.
    """

    application_id: str
    topology_hash: str
    subtopologies: tuple[SubtopologyPlan, ...]
    repartition_topics: dict[str, int | None] = {}
    partition_grouper: str = ""
    gives_up: bool = False
    patterns: dict[str, tuple[str, ...]] = {}
    fed_by: dict[str, tuple[str, ...]] = {}
    purposes: dict[str, str] = {}
    tables: tuple[TablePlan, ...] = ()

    def matched(self, names: Collection[str]) -> TopologyPlan:
        """Return the plan with matching topics in place of its patterns.

        :param names: names of all existing topics.
        :raises TopologyError: no topic matches a pattern, or two match one topic.
        """
        if not self.patterns:
            return self
        matches = match_all(self.patterns, names, self.application_id)
        return msgspec.structs.replace(
            self,
            subtopologies=tuple(
                msgspec.structs.replace(
                    sub,
                    sources=replaced(sub.sources, matches),
                    copartitioned=tuple(
                        group for group in (replaced(g, matches) for g in sub.copartitioned) if len(group) > 1
                    ),
                    keyed_together=tuple(replaced(group, matches) for group in sub.keyed_together),
                    key_forms=tuple(
                        msgspec.structs.replace(form, topics=replaced(form.topics, matches))
                        for form in sub.key_forms
                    ),
                    key_suffixes={
                        name: size
                        for topic, size in sub.key_suffixes.items()
                        for name in replaced((topic,), matches)
                    },
                )
                for sub in self.subtopologies
            ),
            patterns=matches,
        )

    def reads(self, topics: Collection[str]) -> bool:
        """Return True if a run of the topology may have read exactly these input topics: all named ones, and
        some that match each pattern.
        """
        matched = {name for matches in self.patterns.values() for name in matches}
        named = {topic for topic in self.inputs if pattern_of(topic) is None} - matched
        others = {*topics} - named
        by_pattern = [{*matching(pattern_of(topic) or "", others)} for topic in self.patterns]
        return named <= {*topics} and others == set().union(*by_pattern) and all(by_pattern)

    @property
    def sources(self) -> tuple[str, ...]:
        """Every topic that some subtopology reads, sorted."""
        return tuple(sorted({topic for sub in self.subtopologies for topic in sub.sources}))

    @property
    def intermediates(self) -> tuple[str, ...]:
        """Topics that the topology both writes and reads, sorted: ``through``, repartition, ``send_to`` +
        ``stream``.
        """
        written = {topic for sub in self.subtopologies for topic in sub.sinks}
        return tuple(topic for topic in self.sources if topic in written)

    def start_over_flags(self, read: Collection[str] = ()) -> str:
        """Return the options of a reset after which everything is processed again, with empty state.

        :param read: the topics that runs have read, as a reset refuses others, which need none; all of the
            plan's unless given.
        """
        between = [topic for topic in self.intermediates if topic not in self.repartition_topics]
        named = (
            [topic for topic in topics if not read or topic in read] for topics in (self.inputs, between)
        )
        return start_over_flags(*named)

    def start_over_command(self, read: Collection[str] = ()) -> str:
        """Return the reset after which everything is processed again, with empty state.

        :param read: as for :meth:`start_over_flags`.
        """
        return reset_command(self.application_id, self.start_over_flags(read))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Source topics that the topology does not write, sorted."""
        intermediates = set(self.intermediates)
        return tuple(topic for topic in self.sources if topic not in intermediates)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Topics that the topology writes and does not read, sorted."""
        sources = set(self.sources)
        return tuple(sorted({t for sub in self.subtopologies for t in sub.sinks if t not in sources}))

    @property
    def globals(self) -> tuple[str, ...]:
        """Topics of global tables, sorted; every task reads them whole, outside the slice."""
        return tuple(sorted({topic for sub in self.subtopologies for topic in sub.globals}))

    @property
    def stateful(self) -> bool:
        """True if some subtopology keeps state."""
        return any(sub.stores for sub in self.subtopologies)

    @property
    def changelogs(self) -> dict[str, int]:
        """Changelog topic -> id of the subtopology that owns it."""
        return {topic: sub.id for sub in self.subtopologies for topic in sub.changelogs.values()}

    def subtopology(self, subtopology_id: int) -> SubtopologyPlan:
        """Return one subtopology.

        :raises KeyError: no subtopology has this id.
        """
        for sub in self.subtopologies:
            if sub.id == subtopology_id:
                return sub
        raise KeyError(subtopology_id)

    @property
    def landing(self) -> SubtopologyPlan | None:
        """The subtopology that lands files in tables; None without tables."""
        return next((sub for sub in self.subtopologies if sub.lands), None)

    def intermediates_of(self, subtopology_id: int) -> tuple[str, ...]:
        """Return the intermediate topics that a subtopology writes, for which its tasks write done
        notifications.
        """
        read = set(self.sources)
        return tuple(topic for topic in self.subtopology(subtopology_id).sinks if topic in read)

    def writers_of(self, topic: str) -> tuple[SubtopologyPlan, ...]:
        """Return the subtopologies that write a topic."""
        return tuple(sub for sub in self.subtopologies if topic in sub.sinks)
