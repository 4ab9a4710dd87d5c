"""The protocol of operators: what a processor node does, and what the engine knows of it before it runs.

Rule: an operator is a frozen dataclass of three members. ``type`` names its kind; ``traits`` say everything
that the engine has to know while it builds, cuts and checks a topology; ``bind`` makes the closure of one
task. The engine reads nothing else of an operator.

**One way to write an operator.** What a node does with a record needs what belongs to one task: its stores,
its counters, its timers. ``bind`` is given all of that, so every operator is written as ``bind``. The closure
that it returns is a function of Python, or it is made of lines of code by ``context.written`` (see
``inlining.py``). Whoever calls a closure sees no difference; the loop of a source holds the lines in place of
a call. Operators that run for nearly every record are made of lines, those with much control flow and those
that call a user's object are functions.

**A trait is checked.** A trait that is wrong would mislead the engine without a sign, so binding refuses an
operator that does what its traits do not say (``runtime/node_context.py``), and the counts of every commit
refuse a ``flow`` that does not hold (``runtime/flow_check.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from airflow_kstreams.streams.graph.calls import CallOptions
from airflow_kstreams.streams.graph.global_tables import GlobalTableDef
from airflow_kstreams.streams.graph.services import Forward, ProcessorServices
from airflow_kstreams.streams.windows import SessionWindow, SlidingWindow, TimeWindow

#: What becomes of a record that arrives at a node.
#:
#: - ``kept``: the node passes it on once, to every child, or counts it as left out.
#: - ``parted``: the node passes it on once, to one of its children, or counts it as left out.
#: - ``free``: the node gives any number of records.
Flow = Literal["kept", "parted", "free"]

#: What a node that takes a :class:`~airflow_kstreams.streams.serde.changed.Change` of each key does with old
#: values.
#:
#: - ``needs``: it computes with them.
#: - ``passes on``: it needs them only if a node below it does.
#: - ``ignores``: it takes changes for another reason.
OldValues = Literal["needs", "passes on", "ignores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTraits:
    """What the engine knows of an operator; each default is what holds for a function of one record.

    :param flow: what becomes of a record. The counts of each commit are held against it.
    :param calls: how it calls its function, where calls run beside each other; it then binds through
        ``context.calls``. None for an operator that makes no such calls.
    :param on_threads: makes the operator that calls the same function on threads, given how, where a task has
        several; it may give None. None for an operator that stays on the task's own thread.
    :param asks_for_commits: whether the node may ask for a commit behind a record.
    :param old_values: what it does with old values, if it takes a table's changes. None for an operator that
        takes values.
    :param global_table: the global table that it reads; None if it reads none.
    :param held_back_ms: how far behind stream time what it gives may be dated, because it waits for stream
        time; 0 if it gives each record at once. The end of a run holds back what lies below by that. None for
        an operator that does not go by stream time: what it gives is dated as what it got.
    :param free_times: whether a user's code goes by stream time here, and dates what it gives as it likes;
        windows below need the grace for that.
    :param redates: whether it dates records anew, so that no cut of a run by time says anything of them.
    :param stores_of_user: names of the stores in which a user's code keeps entries, under keys of its own
        choice; ``all`` for all those of the node.
    :param windows: the window of each store that keeps an entry for each window, by the store's name. Entries
        of other windows would be misread.
    """

    flow: Flow = "free"
    calls: CallOptions | None = None
    on_threads: Callable[[CallOptions], Operator | None] | None = None
    asks_for_commits: bool = False
    old_values: OldValues | None = None
    global_table: GlobalTableDef | None = None
    held_back_ms: int | None = None
    free_times: bool = False
    redates: bool = False
    stores_of_user: Collection[str] | Literal["all"] = ()
    windows: Mapping[str, TimeWindow | SessionWindow | SlidingWindow] = field(default_factory=dict)


@runtime_checkable
class Operator(Protocol):
    """What a processor node does. Implementations are frozen dataclasses.

    The closure that ``bind`` makes must take ``(key, value, _node=<the node's name>)``: the default argument
    lets an error's traceback show at which node it happened, at no cost per record.
    """

    @property
    def type(self) -> str:
        """Stable name of the kind, e.g. ``filter``; part of the topology hash."""
        ...

    @property
    def traits(self) -> OperatorTraits:
        """What the engine knows of the operator."""
        ...

    def bind(self, forward: Forward, context: ProcessorServices, children: dict[str, Forward]) -> Forward:
        """Make the closure of one task.

        :param forward: hands a record to every child.
        :param context: the task's services for this node.
        :param children: child name -> hands a record to that child only.
        :raises TopologyError: the operator does what its traits do not say.
        """
        ...
