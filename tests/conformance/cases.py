"""The table: what a topic can look like at the end of a bounded read, and what a correct one gives.

A bounded read fixes the end of every partition when it starts, gives each committed record up to there once,
ends, and leaves its position at that end; the next one goes on from it. What arrives, or becomes decided,
after the end was fixed belongs to the next. What had to be read and is gone is an error, not a gap.
"""

from __future__ import annotations

from tests.conformance.steps import (
    AddPartitions,
    Case,
    Close,
    Compact,
    DeleteBefore,
    Item,
    KeepWriting,
    Open,
    Read,
    Recreate,
    Write,
    keyed,
    named,
    numbered,
    tombstone,
)

_VOID = named("void")
_HUNDRED = numbered("r", 100)

#: Ends of a log that are no plain record.
_TAILS = (
    Case(
        name="commit marker",
        shows="the last offset is the marker of a committed transaction",
        steps=(
            Write(items=named("a")),
            Write(items=named("b"), ending="commit"),
            Read(gives=("a", "b")),
            Write(items=named("c")),
            Read(gives=("c",)),
        ),
    ),
    Case(
        name="abort marker",
        shows="the last offset is the marker of an aborted transaction, one aborted record before it",
        steps=(
            Write(items=named("a")),
            Write(items=_VOID, ending="abort"),
            Read(gives=("a",)),
            Write(items=named("b")),
            Read(gives=("b",)),
        ),
    ),
    Case(
        name="open transaction",
        shows="a transaction is open; the last stable offset lies behind the high watermark, then advances",
        steps=(
            Write(items=named("a")),
            Open(transaction="t", items=named("b")),
            Write(items=named("c")),
            Read(gives=("a",)),
            Close(transaction="t", how="commit"),
            Read(gives=("b", "c")),
        ),
    ),
    Case(
        name="open transaction, then aborted",
        shows="as before, and the transaction is aborted between the reads",
        steps=(
            Write(items=named("a")),
            Open(transaction="t", items=_VOID),
            Write(items=named("b")),
            Read(gives=("a",)),
            Close(transaction="t", how="abort"),
            Read(gives=("b",)),
        ),
    ),
    Case(
        name="open transaction at the start",
        shows="nothing is stable: the whole log is an open transaction",
        steps=(
            Open(transaction="t", items=named("a")),
            Read(),
            Close(transaction="t", how="commit"),
            Read(gives=("a",)),
        ),
    ),
    Case(
        name="aborted records only",
        shows="the log holds fifty aborted records and their marker",
        steps=(
            Write(items=named(*numbered("void", 50)), ending="abort"),
            Read(),
            Write(items=named("a")),
            Read(gives=("a",)),
        ),
    ),
    Case(
        name="100 consecutive aborts",
        shows="a hundred aborted transactions of one record each at the tail",
        steps=(
            Write(items=named("a")),
            Write(items=_VOID, ending="abort", times=100),
            Read(gives=("a",)),
            Write(items=named("b")),
            Read(gives=("b",)),
        ),
    ),
    Case(
        name="several interleaved transactions",
        shows="committed, aborted and open transactions between each other's records",
        steps=(
            Open(transaction="x", items=named("x1")),
            Open(transaction="y", items=named("void-y1")),
            Open(transaction="x", items=named("x2")),
            Write(items=named("p")),
            Open(transaction="z", items=named("z1")),
            Close(transaction="y", how="abort"),
            Open(transaction="y", items=named("y2")),
            Close(transaction="x", how="commit"),
            Close(transaction="y", how="commit"),
            Read(gives=("x1", "x2", "p")),
            Open(transaction="z", items=named("z2")),
            Close(transaction="z", how="commit"),
            Read(gives=("z1", "y2", "z2")),
        ),
    ),
    Case(
        name="markers between records",
        shows="a marker, or an aborted record and a marker, after every single record",
        steps=(
            *(
                step
                for number in range(10)
                for step in (
                    Write(items=named(f"c{number}"), ending="commit"),
                    Write(items=_VOID, ending="abort"),
                )
            ),
            Read(gives=numbered("c", 10)),
            Write(items=named("d"), ending="commit"),
            Read(gives=("d",)),
        ),
    ),
    Case(
        name="fenced producer",
        shows="a crashed producer's transaction, which its successor's start aborts",
        steps=(
            Write(items=named("a")),
            Open(transaction="t", items=_VOID),
            Close(transaction="t", how="fence"),
            Read(gives=("a",)),
            Open(transaction="t", items=named("b")),
            Close(transaction="t", how="commit"),
            Read(gives=("b",)),
        ),
    ),
    Case(
        name="only markers are new",
        shows="since the last read nothing but an abort arrived, in one of two partitions",
        partitions=2,
        steps=(
            Write(items=named("a")),
            Write(items=named("b"), partition=1),
            Read(gives=("a", "b")),
            Write(items=_VOID, ending="abort"),
            Read(),
            Write(items=named("c"), partition=1),
            Read(gives=("c",)),
        ),
    ),
)

#: Few records, or none.
_SIZES = (
    Case(
        name="one lone record",
        shows="a log of one record",
        steps=(Write(items=named("a")), Read(gives=("a",)), Write(items=named("b")), Read(gives=("b",))),
    ),
    Case(
        name="empty",
        shows="a topic that never had a record",
        partitions=2,
        steps=(Read(), Write(items=named("a"), partition=1), Read(gives=("a",))),
    ),
    Case(
        name="start equals stop",
        shows="nothing at all arrived since the last read",
        steps=(
            Write(items=named("a", "b")),
            Read(gives=("a", "b")),
            Read(),
            Read(),
            Write(items=named("c")),
            Read(gives=("c",)),
        ),
    ),
    Case(
        name="one partition of two is quiet",
        shows="start equals stop in one partition, the other has records",
        partitions=2,
        steps=(
            Write(items=named("a"), partition=0),
            Write(items=named("b"), partition=1),
            Read(gives=("a", "b")),
            Write(items=named("c"), partition=1),
            Read(gives=("c",)),
            Write(items=named("d"), partition=0),
            Read(gives=("d",)),
        ),
    ),
    Case(
        name="null keys, tombstones, empty values",
        shows="records without key, without value, and with nothing in them",
        steps=(
            Write(items=keyed(None, "a", "b") + tombstone("k", "gone") + keyed("", "c")),
            Write(items=(Item(name="empty", key="k", value=""), Item(name="nothing", key=None, value=None))),
            Write(items=tombstone("l", "gone too")),
            Read(gives=("a", "b", "gone", "c", "empty", "nothing", "gone too")),
            Write(items=tombstone("m", "gone at last")),
            Read(gives=("gone at last",)),
        ),
    ),
    Case(
        name="huge record",
        shows="a record of 900,000 bytes is the last one before a marker",
        steps=(
            Write(items=named("a")),
            Write(items=named("huge", size=900_000), ending="commit"),
            Read(gives=("a", "huge")),
            Write(items=named("b")),
            Read(gives=("b",)),
        ),
    ),
    Case(
        name="compressed batches",
        shows="a hundred records in one compressed batch, in each codec",
        steps=(
            *(
                Write(items=named(*numbered(codec, 100)), together=True, compression=codec)
                for codec in ("gzip", "snappy", "lz4", "zstd")
            ),
            Read(gives=sum((numbered(codec, 100) for codec in ("gzip", "snappy", "lz4", "zstd")), ())),
            Write(items=named("a")),
            Read(gives=("a",)),
        ),
    ),
)

#: Gaps that compaction leaves. Every record of a compacted topic lies in a segment of its own.
_GAPS = (
    Case(
        name="all records compacted",
        shows="keys were deleted, and the deletions are gone too: not one record is left",
        compacted=True,
        steps=(
            Write(items=keyed("k", "k1", "k2") + keyed("l", "l1")),
            Write(items=tombstone("k", "no k") + tombstone("l", "no l")),
            Compact(remaining=(), nudge=True),
            Read(),
            Write(items=keyed("m", "m1")),
            Read(gives=("m1",)),
        ),
    ),
    Case(
        name="compacted tail",
        shows="the last records were deleted and compacted away, several batches of them; others remain",
        compacted=True,
        steps=(
            Write(items=keyed("a", "a1") + keyed("k", "k1", "k2") + keyed("l", "l1", "l2")),
            Write(items=tombstone("k", "no k") + tombstone("l", "no l")),
            Compact(remaining=("a1",), nudge=True),
            Read(gives=("a1",)),
            Write(items=keyed("m", "m1")),
            Read(gives=("m1",)),
        ),
    ),
    Case(
        name="tail compacted during the read",
        shows="between start and read the last five records are superseded and compacted away",
        compacted=True,
        steps=(
            Write(items=keyed("a", "a1") + keyed("k", "k1", "k2", "k3") + keyed("l", "l1", "l2")),
            Read(
                gives=("a1",),
                during=(
                    Write(items=keyed("k", "k4") + keyed("l", "l3") + keyed("m", "m1")),
                    Compact(remaining=("a1", "k4", "l3", "m1")),
                ),
            ),
            Read(gives=("k4", "l3", "m1")),
        ),
    ),
    Case(
        name="all compacted during the read",
        shows="between start and read every record of the read is superseded and compacted away",
        compacted=True,
        steps=(
            Write(items=keyed("k", "k1", "k2")),
            Read(
                during=(Write(items=keyed("k", "k3") + keyed("l", "l1")), Compact(remaining=("k3", "l1"))),
            ),
            Read(gives=("k3", "l1")),
        ),
    ),
    Case(
        name="aborted record of a kept key",
        shows="compacted; the last record of a key belongs to an aborted transaction, the one before counts",
        compacted=True,
        steps=(
            Write(items=keyed("k", "k1", "k2"), ending="commit"),
            Write(items=keyed("k", "undone"), ending="abort"),
            Compact(remaining=("k2",), nudge=True),
            Read(gives=("k2",)),
            Write(items=keyed("k", "k3")),
            Read(gives=("k3",)),
        ),
    ),
    Case(
        name="gap at the start",
        shows="what follows the committed offset was compacted away, before it was read",
        compacted=True,
        steps=(
            Write(items=keyed("a", "a1")),
            Read(gives=("a1",)),
            Write(items=keyed("k", "k1", "k2", "k3") + keyed("l", "l1")),
            Compact(remaining=("a1", "k3", "l1")),
            Read(gives=("k3", "l1")),
            Write(items=keyed("m", "m1")),
            Read(gives=("m1",)),
        ),
    ),
)

#: What happens between the start of a read and its end.
_MEANWHILE = (
    Case(
        name="records arrive during the read",
        shows="more records arrive after the read began",
        partitions=2,
        steps=(
            Write(items=named(*_HUNDRED)),
            Read(gives=_HUNDRED, during=(Write(items=named("late")), Write(items=named("2"), partition=1))),
            Read(gives=("late", "2")),
        ),
    ),
    Case(
        name="a producer that never pauses",
        shows="a record arrives every 50 ms as long as the read goes on",
        steps=(
            Write(items=named("a", "b")),
            Read(gives=("a", "b"), during=(KeepWriting(),)),
            Read(gives=None),
        ),
    ),
    Case(
        name="committed during the read",
        shows="a transaction was open when the read began, and is committed before it has read",
        steps=(
            Write(items=named("a")),
            Open(transaction="t", items=named("b")),
            Read(gives=("a",), during=(Close(transaction="t", how="commit"),)),
            Read(gives=("b",)),
        ),
    ),
    Case(
        name="aborted during the read",
        shows="a transaction was open when the read began, and is aborted before it has read",
        steps=(
            Write(items=named("a")),
            Open(transaction="t", items=_VOID),
            Write(items=named("b")),
            Read(gives=("a",), during=(Close(transaction="t", how="abort"),)),
            Read(gives=("b",)),
        ),
    ),
    Case(
        name="partition added",
        shows="the topic gets a second partition, with records, between two reads",
        steps=(
            Write(items=named("a")),
            Read(gives=("a",)),
            AddPartitions(total=2),
            Write(items=named("b"), partition=1),
            Read(gives=("b",)),
            Write(items=named("c"), partition=1),
            Write(items=named("d")),
            Read(gives=("c", "d")),
        ),
    ),
    Case(
        name="partition added during the read",
        shows="the topic gets a second partition, with records, after the read began",
        steps=(
            Write(items=named("a")),
            Read(gives=("a",), during=(AddPartitions(total=2), Write(items=named("b"), partition=1))),
            Write(items=named("c")),
            Read(gives=("b", "c")),
        ),
    ),
)

#: The log begins elsewhere, or is another one.
_LOSSES = (
    Case(
        name="log start above zero",
        shows="the first read finds a log whose beginning is gone, in the middle of a batch",
        steps=(
            Write(items=named(*numbered("r", 10)), together=True, compression="lz4"),
            DeleteBefore(offset=4),
            Read(gives=numbered("r", 10)[4:]),
            Write(items=named("a")),
            Read(gives=("a",)),
        ),
    ),
    Case(
        name="log start moved over what was read",
        shows="retention removed records that an earlier read gave, all of them",
        steps=(
            Write(items=named("a", "b")),
            Read(gives=("a", "b")),
            DeleteBefore(offset=-1),
            Read(),
            Write(items=named("c")),
            Read(gives=("c",)),
        ),
    ),
    Case(
        name="log start moved over unread records",
        shows="retention removed records that no read gave",
        steps=(
            Write(items=named("a", "b")),
            Read(gives=("a", "b")),
            Write(items=named("c", "d", "e")),
            DeleteBefore(offset=4),
            Read(gives=("c", "d", "e"), loses=True),
        ),
    ),
    Case(
        name="log start moved to the end, unread",
        shows="retention removed all that no read gave; the log is empty",
        steps=(
            Write(items=named("a")),
            Read(gives=("a",)),
            Write(items=named("b", "c")),
            DeleteBefore(offset=-1),
            Read(gives=("b", "c"), loses=True),
        ),
    ),
    Case(
        name="log start moved during the read",
        shows="retention removes records of the read after it began",
        steps=(
            Write(items=named("a")),
            Read(gives=("a",)),
            Write(items=named("b", "c", "d")),
            Read(
                gives=("b", "c", "d"),
                loses=True,
                during=(Write(items=named("e")), DeleteBefore(offset=3)),
            ),
        ),
    ),
    Case(
        name="recreated topic, shorter",
        shows="the topic was deleted and created again, with fewer records than were read",
        steps=(
            Write(items=named("a", "b", "c")),
            Read(gives=("a", "b", "c")),
            Write(items=named("lost")),
            Recreate(),
            Write(items=named("d")),
            Read(gives=("lost", "d"), loses=True),
        ),
    ),
    Case(
        name="recreated topic, longer",
        shows="the topic was deleted and created again, with more records than were read",
        steps=(
            Write(items=named("a")),
            Read(gives=("a",)),
            Write(items=named("lost")),
            Recreate(),
            Write(items=named("b", "c", "d")),
            Read(gives=("lost", "b", "c", "d"), loses=True),
        ),
    ),
    Case(
        name="recreated topic, as long",
        shows="the topic was deleted and created again, with as many records as were read",
        steps=(
            Write(items=named("a", "b")),
            Read(gives=("a", "b")),
            Write(items=named("lost")),
            Recreate(),
            Write(items=named("c", "d")),
            Read(gives=("lost", "c", "d"), loses=True),
        ),
    ),
    Case(
        name="recreated during the read",
        shows="the topic is deleted and created again, longer, after the read began",
        steps=(
            Write(items=named("a")),
            Read(gives=("a",)),
            Write(items=named("b")),
            Read(gives=("b",), loses=True, during=(Recreate(), Write(items=named("c", "d", "e")))),
        ),
    ),
)

CASES: tuple[Case, ...] = (*_TAILS, *_SIZES, *_GAPS, *_MEANWHILE, *_LOSSES)
