"""Sends reports from executors back through Spark: a row for each task, as JSON.

Errors that a retry cannot help (a bad record, lost data) are returned as rows, so that the driver raises them
unchanged after one try. Every other error is raised, so that Spark retries the Spark task: success is never
returned for a task that is fenced and unfinished, because Spark would then kill the live attempt.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_kstreams.batch.growing.state_copy import Ended
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.streams.errors import ERROR_MARKER, KStreamsError, RecordError

if TYPE_CHECKING:
    import pyarrow as pa

    #: The function for ``mapInArrow``: Spark partition ids in, reports out.
    ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: Schema of the one column that travels back through Spark.
REPORT_SCHEMA = "report string"


class MadeMerge(msgspec.Struct, frozen=True, kw_only=True):
    """The file into which small ones were merged.

    :param place: number of the merge among those of the job.
    :param file: the file, as ``packed_file`` of :mod:`airflow_kstreams.batch.protocol.file_list` gives it.
    """

    place: int
    file: bytes


class MadeRewrite(msgspec.Struct, frozen=True, kw_only=True):
    """What an upsert changes of one bucket of a table.

    :param place: number of the bucket among those of the job.
    :param removed: paths of the files that leave the table.
    :param removed_bytes: number of their bytes.
    :param added: the files that come into it, packed as in :class:`MadeMerge`.
    """

    place: int
    removed: tuple[str, ...]
    removed_bytes: int
    added: tuple[bytes, ...]


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome: a task's report, that of a copy of state, a merged file, a rewritten bucket, or an error
    that a retry cannot help.
    """

    report: TaskReport | None = None
    copied: Ended | None = None
    merged: MadeMerge | None = None
    rewritten: MadeRewrite | None = None
    error: dict[str, Any] | None = None


def in_arrow(run: Callable[[int], list[HostReport]]) -> ArrowFunction:
    """Return the function for ``mapInArrow``: Spark partition ids in, reports out.

    :param run: runs the tasks of one Spark partition.
    """

    def run_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for index in batch.column(0).to_pylist():
                # Not pa.array: converting a list imports pandas, two seconds and 80 MB in every worker.
                column = pa.lib.StringBuilder()
                with sparing_gc():
                    reports = run(index)
                for report in reports:
                    column.append(msgspec.json.encode(report).decode())
                yield pa.RecordBatch.from_arrays([column.finish()], names=["report"])

    return run_tasks


def reported(error: KStreamsError) -> HostReport:
    """Return an error that a retry cannot help as a row; raise every other one, with its report for the
    driver.

    :raises KStreamsError: the error, so that Spark retries.
    """
    if isinstance(error, RecordError) or not error.is_retriable:
        return HostReport(error=error.to_dict())
    error.add_note(ERROR_MARKER + json.dumps(error.to_dict()))
    raise error


#: Objects made and not dropped after which the collector comes: more than the records of a fetch, and than
#: what thousands of records consist of whose calls are under way.
_OBJECTS = 50_000


@contextmanager
def sparing_gc() -> Iterator[None]:
    """Make Python's garbage collector ignore the objects that exist before the block; collect those of the
    block in the end.

    A task makes and drops client records by the million, none of them in a reference cycle, and keeps
    thousands of them buffered. Python counts each of them, so its collector runs after every 700, and often
    scans all that the worker has imported: a fifth of a task's time. While tasks run, the collector ignores
    older objects and runs less often; cycles of user code wait that much longer.

    Nothing is changed if the collector is off, or if other code has frozen objects, which could not be
    distinguished from these in the end. Thresholds that the block sets stay.
    """
    before = gc.get_threshold()
    sparing = (max(_OBJECTS, before[0]), *before[1:])
    alone = gc.get_freeze_count() == 0 and before[0] > 0
    if alone:
        gc.freeze()
        gc.set_threshold(*sparing)
    try:
        yield
    finally:
        # A bound topology refers to itself: its stores must not wait for the collector's own time.
        gc.collect()
        if alone:
            gc.unfreeze()
            if gc.get_threshold() == sparing:
                gc.set_threshold(*before)
