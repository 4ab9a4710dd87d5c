"""Rare states that seeds must come to: one that no seed comes to is one that nothing here checks.

Whoever sees such a state says ``sometimes("...")``: an oracle that works out what must have happened, a fault
that happened, or a look at the product as it decides (``probes.py``). A campaign counts the seeds that came
to each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

#: Of tables of a lakehouse.
LANDING_STATES: tuple[str, ...] = (
    "a run that had no rows made an empty snapshot",
    "a run was found in its table by its mark",
    "two processes brought a run into its tables",
    "a late commit took effect",
    "a late commit found that its table had moved",
    "others compacted files of a run",
    "a harmed table was refused, and mended",
)
STATES: tuple[str, ...] = (
    *LANDING_STATES,
    # windows
    "a window closed in a later run than its first record",
    "a window closed after a crash since its first record",
    "a late record was dropped",
    "a record came late for some windows and in time for others",
    "two records of one task had the same time",
    "stream time of an earlier run made a record late",
    "the end of a run closed a window",
    # sessions
    "a session merged two sessions",
    "a session went on in a later run",
    "a session went on after a crash",
    # joins
    "a join matched across runs",
    "a join matched across a crash",
    "an element without partner was joined with nothing in a later run",
    "the end of a run ended the wait of an element without partner",
    "a partner came too late for a join",
    "a table's row was deleted and not found",
    "a table's row of an earlier run was found",
    # tables and versions
    "a row of an earlier run was taken back",
    "a row of an earlier run was changed",
    "a late record met an older version of a row",
    "a late record met an older version of an earlier run",
    "a late record met an older version after a crash",
    "a version came too late for its table's history",
    "a record came too late for the history of the table that it was joined with",
    "a global table's row was another one than in the run before",
    # local state
    "a restore started from a checkpoint",
    "a restore replayed what a checkpoint did not have",
    "a checkpoint was not used",
    "a task died between two steps on its local files",
    "local files of a dead task were swept away",
    # who runs
    "a second scheduler of equal order began the same run",
    "a second scheduler of equal order lost the race after the claim",
    "the ledger read again after the claim said otherwise",
    "a fenced task found its stop reached",
    "a run was claimed",
    # clocks
    "a lease was judged while clocks differed by more than lease.ms",
    "a lease ran out and was taken",
    "a clock was set while a run was under way",
    "a record was sent at another time than the broker's",
    # outcomes and counts
    "a commit's outcome was unknown and it had taken effect",
    "a commit's outcome was unknown and it had not taken effect",
    "a dead letter was written",
    "a task's counts went through a crash",
    "a record took nearly all that a topic takes",
    # calls
    "a call overtook one before it",
    "a call was overtaken by one of another key",
    "a call took too long",
    "a call swallowed its cancellation",
    "a call that no record led to was refused a key",
    "a call was made again and took no second effect",
    "a call ran in two tasks at the same time",
    "a call took longer than a transaction may",
    "a commit came while calls were under way",
    "a task died while its calls were under way",
    "a task ended while a store was ahead of what it had released",
    # retries
    "a call failed because the service was away",
    "a call failed and had taken effect",
    "a call was made again in the attempt in which it failed",
    "a record was parked behind another one of its key",
    "a record was parked that had been parked above",
    "a record was parked by a clock far ahead",
    "a result was thrown away because its key was parked",
    "a parked record became a dead letter",
    "a parked record was called again while its task stayed at its stops",
    "a task took over parked records",
    "a task died with records parked",
    "a zombie had records parked",
    "a task committed at its stops, and stayed for parked records",
    "a task committed while so much was parked that it chose no more",
    "a processor called",
    "a processor called on a thread",
    "a run left records parked",
    "runs followed until nothing was parked",
    # lives
    "the lines of an application were swapped",
    "an application got another line, and its topic",
    "an application lost a line, and its topic",
    "a store was renamed",
    "two stores exchanged their names",
    "the grace of windows was changed",
    "the size of windows was changed",
    "the history of a table was changed",
    "another branch got the topic of one",
    "letters came back right after a deployment",
    "letters of a branch came back",
    "a deployment was taken back because it was refused",
    "state went on under the name that an error printed",
    "a printed command was followed to its result",
    "reading went on where a person knew that it had ended",
    "a process of an application with a past died",
    "a run that was left in the middle was finished by the next",
    "a continuous run stopped, and another run followed",
    "a continuous run was killed, and another run followed",
    "dead letters came back",
    "a replay died, and went on",
    "a replay was refused because nobody would read the letters",
    "an application started over",
    "a reset died, and was made again",
    "an interval was backfilled beside the application",
    "another consumer was a member of the application's group",
    "another consumer committed an offset ahead",
    "committed offsets of an application with a past expired",
    "retention deleted records that runs had read",
    "retention deleted records that nobody had read",
    "the end of a log was cut, and records that were read with it",
    "the end of a log was cut, and others took the offsets of what was read",
    "the end of a log was cut while a run was under way",
    "a topic was made anew",
    "a pattern came to match another topic",
    "a topic that a pattern matched was deleted",
    "local files were exchanged for an older copy",
    "local files were removed",
    "a local file was damaged",
    "a record of 1970 had a window of its own",
    "a record came late for its window",
)

_REACHED: list[set[str]] = []


def sometimes(state: str) -> None:
    """Take note that a rare state was reached.

    :param state: one of :data:`STATES`.
    """
    if state not in STATES:
        raise KeyError(f"{state!r} is none of STATES")
    if _REACHED:
        _REACHED[-1].add(state)


@contextmanager
def noting() -> Iterator[set[str]]:
    """Collect the states that are reached in a block."""
    reached: set[str] = set()
    _REACHED.append(reached)
    try:
        yield reached
    finally:
        _REACHED.pop()
