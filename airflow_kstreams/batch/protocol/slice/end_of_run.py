"""Brings stream time, at the end of a run, to the moment that begin froze.

A run that stops at the end of its data interval has read what is dated before. The interval's windows need no
further record; but stream time is that of records, so their results would come with the first record dated
past them, hours later, or never on a quiet partition. So at the end of a run each task advances its stream
time to a moment.

Rule:

1. Begin freezes the moment with the slice: the end of the data interval, or its own. For each subtopology it
   is less what may still come to it (:mod:`airflow_kstreams.streams.topology.time_limits`).
2. A task that is at its stop offsets brings stream time from one moment at which a timer is due to the next,
   up to the run's moment: windows close, joins give up waiting, punctuations come, each as if a record dated
   then had come on every topic. What that does not close, ``at_run_end`` decides on after it, when the
   processors close.
3. Its last commit says so (``complete``). With a moment frozen, its driver, the readers of what it writes,
   and finish take no task for done before.
4. A task none of whose topics has a stream time never saw a record, or has nothing that goes by it: it is not
   advanced. One with records parked in a retry topic is not, either, unless the user asks for it by name; nor
   one that reads a topic of which partitions wait for others, or lies below such. Nothing is advanced in a
   run whose stop offsets another program has frozen (KIP-95's bare records).

5. Every commit says beside the offsets when the task has something to do next. A run starts the tasks that
   have something to read, or to do before the moment; without such tasks it starts no Spark. For a task that
   does not run, finish advances the stream time beside its offsets, with the finished marker: nothing was
   due. Where it is not known when a task is next due (another topology, moved state, an offset that an
   operator set), it counts as due.

Invariant: the stream time beside the offsets is how far the end of the run has come. Every moment at or
before it has passed, with all that follows from it in stores and outputs; none behind it has.

Crash argument: what a moment brings about, and the stream time that says that it has passed, are of one
transaction, as with a record. The end of the run may take several: each ends between two moments, at the stop
offsets, and is not complete. An attempt that dies leaves the last one; the next attempt finds the offsets at
the stops and no mark, restores stores and stream time as of that commit, and goes on with the first moment
behind it. So each window closes once, after any crash. The mark and the last moments are of one transaction,
together with what the processors give in close and the done notification: a reader that sees one sees all.
The moment is part of the completed marker, so an attempt days later advances no further.

Downstream: the stop offsets of a topic between subtopologies are frozen when all its writers have notified,
so behind what the end of the run gave. Its readers read that first, and end their run after it.

Over runs: stream time starts where the last run left it, so what a run has closed stays closed, and a record
dated before the moment that comes later is late by its window's own grace.
"""

from __future__ import annotations

import msgspec


class EndOfRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """To where the end of a run brings stream time.

    :param moment_ms: the moment, epoch milliseconds.
    :param subtopologies: subtopology id as text -> the moment less what may still come to it; one that is not
        advanced is absent.
    :param also: nodes whose parked records do not keep their tasks from it.
    """

    moment_ms: int
    subtopologies: dict[str, int] = {}
    also: tuple[str, ...] = ()

    def moment_of(self, subtopology: int) -> int | None:
        """Return to where it brings a subtopology; None if it does not."""
        return self.subtopologies.get(str(subtopology))
