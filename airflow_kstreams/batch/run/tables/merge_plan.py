"""Chooses the files of a run that are merged before its list is sealed, and says how merges are made.

Rule: behind the merges, the run has at most ``ceil(bytes / target) + 1`` files in each partition of a table,
``bytes`` being those of all its files there. What lies below half the target is merged. Files of half the
target and more are merged, the smallest first, only where the partition would else have more files.

Why the bound holds. Files are put together until they have the target; so each merged file but the last one
has it. Where every file below the target is merged, each file but one has the target, and no more than
``floor(bytes / target)`` can. A merged file has less than twice the target.

The plan is made of the list alone, so every coordinator makes the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_kstreams.batch.protocol.slice.slice import FrozenTarget, Slice
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import TARGET_BYTES, FileFacts
from airflow_kstreams.streams.tables.table_rows import RowsWriter

#: Most files in one merge: the record that names them stays far below the size that a topic takes.
_MOST_FILES = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Files of one partition of a table that one file is to replace.

    :param table: name of the table's sink.
    :param files: offset of a file's record in the list -> the file, in the order of the rows.
    """

    table: str
    files: Mapping[int, FileFacts]

    @property
    def rows(self) -> int:
        """Number of their rows."""
        return sum(file.rows for file in self.files.values())

    @property
    def size(self) -> int:
        """Number of their bytes."""
        return sum(file.size for file in self.files.values())


#: ``merge(table, target, writer, files)`` merges files of one partition of a table into one.
MergeFiles = Callable[[TablePlan, FrozenTarget, RowsWriter, Sequence[FileFacts]], FileFacts]
#: ``merge(slice, merges)`` makes merges of a run's files, and returns the new file of each, in their order.
MakeMerges = Callable[[Slice, Sequence[Merge]], Sequence[FileFacts]]


def made_here(merge_files: MergeFiles) -> MakeMerges:
    """Return what makes merges in this process, one after the other.

    :param merge_files: merges files.
    """

    def make_merges(slice_: Slice, merges: Sequence[Merge]) -> list[FileFacts]:
        return [merged_of(slice_, merge.table, [*merge.files.values()], merge_files) for merge in merges]

    return make_merges


def merged_of(slice_: Slice, table: str, files: Sequence[FileFacts], merge_files: MergeFiles) -> FileFacts:
    """Merge files of a run.

    :param table: name of the table's sink.
    :param files: the files, in their order.
    """
    (plan,) = (each for each in slice_.plan.topology.tables if each.name == table)
    writer = RowsWriter(
        application_id=slice_.plan.topology.application_id,
        run_id=slice_.run_id,
        task_id="merge",
        attempt=slice_.generation,
    )
    return merge_files(plan, slice_.plan.targets[table], writer, files)


def planned_merges(
    table: str, listed: Mapping[int, FileFacts], *, target_bytes: int = 0, sort_by: Sequence[str] = ()
) -> list[Merge]:
    """Return the merges of a run's files of one table.

    :param table: name of the table's sink.
    :param listed: offset of a file's record in the list -> the file.
    :param target_bytes: size of files that the table asks for, bytes; 0 if it does not say.
    :param sort_by: columns by which rows of a file are sorted; files are put together in their order.
    """
    partitions: dict[tuple[Any, ...], dict[int, FileFacts]] = {}
    for place, file in listed.items():
        partitions.setdefault(file.partition, {})[place] = file
    return [
        Merge(table=table, files={place: files[place] for place in places})
        for files in partitions.values()
        for places in _put_together(files, target_bytes or TARGET_BYTES, sort_by)
        if len(places) > 1
    ]


def _put_together(
    files: Mapping[int, FileFacts], target_bytes: int, sort_by: Sequence[str]
) -> list[list[int]]:
    """Return the places of files that are put together, for each file that is to be written."""
    groups: list[list[int]] = []
    room = 0
    for place in _in_order(files, _chosen(files, target_bytes), sort_by):
        if room <= 0 or len(groups[-1]) >= _MOST_FILES:
            groups.append([])
            room = target_bytes
        groups[-1].append(place)
        room -= files[place].size
    return groups


def _chosen(files: Mapping[int, FileFacts], target_bytes: int) -> list[int]:
    """Return the places of the files that take part in merges, the smallest first."""
    places = sorted(files, key=lambda place: files[place].size)
    sizes = [files[place].size for place in places]
    most = -(-sum(sizes) // target_bytes) + 1
    count = sum(2 * size < target_bytes for size in sizes)
    chosen_bytes = sum(sizes[:count])
    while len(places) - count + (chosen_bytes // target_bytes + 1 if count else 0) > most:
        chosen_bytes += sizes[count]
        count += 1
    return places[:count]


def _in_order(files: Mapping[int, FileFacts], places: Sequence[int], sort_by: Sequence[str]) -> list[int]:
    """Return places in the order of the list, or of the first rows of the files where the table is sorted."""
    places = sorted(places)
    if not sort_by:
        return places
    bounds = {place: files[place].columns.get(sort_by[0]) for place in places}
    lower: dict[int, Any] = {place: None if facts is None else facts.lower for place, facts in bounds.items()}
    known = [place for place in places if lower[place] is not None]
    return sorted(known, key=lower.__getitem__) + [place for place in places if lower[place] is None]
