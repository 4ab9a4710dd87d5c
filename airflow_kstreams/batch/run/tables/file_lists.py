"""Reads the list of a run's files, and lets small files be merged before it is sealed.

Rule: the list is what tasks have written below its stop. Merged files stand behind the stop, written in the
transaction that commits the topic's offset past them: that they are there, and that the list is sealed, is
one fact. Each of their records says how many there are, so a reader that does not find all of them says so.

Crash argument: files are merged before that transaction. A coordinator that dies before it leaves merged
files that no list names; the next one merges again, under other names. Of two coordinators that merge, the
transaction of one comes through.

What merged files replace stays in the storage until the run is finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_kstreams.batch.protocol.checked_reading import UnreadableError
from airflow_kstreams.batch.protocol.file_list import FileListReading, ListedFile, MergedFile
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.tables.merge_plan import MakeMerges, Merge, planned_merges
from airflow_kstreams.streams.bounded_read import BoundedRead
from airflow_kstreams.streams.errors import InvariantError, RunError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.tables.table_port import FileFacts

log = package_log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedFiles:
    """What a sealed list says.

    :param added: name of a table's sink -> the files to commit, in the order of the list.
    :param replaced: name of a table's sink -> the files in whose place merged ones are committed.
    """

    added: Mapping[str, list[FileFacts]] = field(default_factory=dict)
    replaced: Mapping[str, list[FileFacts]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList:
    """The list of a run's files.

    :param session: the session of a coordinator that has claimed its id.
    :param slice: the slice.
    :param partition: the partition that holds the list.
    :param span: offset of the first record of the list, and the stop.
    :param lenient: whether records that no task of the run has written are passed over.
    """

    session: CoordinatorSession
    slice: Slice
    partition: TopicPartition
    span: tuple[int, int]
    lenient: bool = False

    def listed(self) -> dict[str, dict[int, FileFacts]]:
        """Return what tasks have listed: name of a table's sink -> offset of the record -> the file.

        :raises RunError: a record is none of this list's.
        """
        found: dict[str, dict[int, FileFacts]] = {}
        for offset, name, each in self._records(self.span):
            # Of a run that was dropped, merged files may stand here.
            if isinstance(each, ListedFile):
                found.setdefault(name, {})[offset] = each.file
        return found

    def sealed(self) -> SealedFiles:
        """Return what the sealed list says.

        :raises RunError: a record is none of this list's, or merged files are missing.
        """
        files = self.listed()
        merged = self._merged()
        replaced: dict[str, list[FileFacts]] = {}
        for name, each in merged:
            places = files.get(name, {})
            if unknown := [place for place in each.replaced if place not in places]:
                raise self._torn(f"{each.file.path} replaces the file at offset {unknown[0]}, which has none")
            replaced.setdefault(name, []).extend(places.pop(place) for place in each.replaced)
        added = {name: list(listed.values()) for name, listed in files.items()}
        for name, each in merged:
            added[name].append(each.file)
        return SealedFiles(added=added, replaced=replaced)

    def merged(self, make_merges: MakeMerges) -> list[tuple[str, MergedFile]]:
        """Let small files be merged, and return the records to seal with: name of a table's sink, and the
        merged file.

        :raises KStreamsError: files could not be merged.
        """
        topology, targets = self.slice.plan.topology, self.slice.plan.targets
        listed = self.listed()
        merges = [
            merge
            for table in topology.tables
            if table.merge and table.mode == "append" and table.name in listed
            for merge in planned_merges(
                table.name,
                listed[table.name],
                target_bytes=targets[table.name].target_bytes,
                sort_by=targets[table.name].sort_by,
            )
        ]
        if not merges:
            return []
        log.info(
            "run %s: %s are merged into %d",
            self.slice.run_id,
            counted(sum(len(merge.files) for merge in merges), "small file"),
            len(merges),
        )
        made = list(make_merges(self.slice, merges))
        self._check(merges, made)
        return [
            (merge.table, MergedFile(self.slice.run_id, len(merges), tuple(merge.files), file))
            for merge, file in zip(merges, made, strict=True)
        ]

    def _check(self, merges: Sequence[Merge], made: Sequence[FileFacts]) -> None:
        expected = [(merge.rows, next(iter(merge.files.values())).partition) for merge in merges]
        found = [(file.rows, file.partition) for file in made]
        if found != expected:
            raise InvariantError(
                "a merged file has the rows and the partition of its files",
                f"{counted(len(found), 'file')} of {counted(sum(rows for rows, _ in found), 'row')}, for "
                f"{counted(len(expected), 'merge')} of {counted(sum(rows for rows, _ in expected), 'row')}",
                where=f"the list of run {self.slice.run_id!r}",
            )

    def _merged(self) -> list[tuple[str, MergedFile]]:
        """Return the merged files behind the stop."""
        (_, stop), committed = self.span, self.session.committed([self.partition])
        end = committed[self.partition].offset if self.partition in committed else stop
        found = [
            (name, each)
            for _, name, each in self._records((stop, max(stop, end)))
            if isinstance(each, MergedFile) and each.run_id == self.slice.run_id
        ]
        if any(each.records != len(found) for _, each in found):
            raise self._torn(f"{found[0][1].records} merged files were sealed, and {len(found)} are there")
        return found

    def _records(self, span: tuple[int, int]) -> Iterator[tuple[int, str, ListedFile | MergedFile]]:
        """Give offset, name of a table's sink and content of each record of a span."""
        reading, run_id = FileListReading(self.slice.plan.topology.tables), self.slice.run_id
        with self.session.reading:
            read = BoundedRead(self.session.reader, {self.partition: span}, clock=self.session.clock)
            for record in (each for fetch in read for records in fetch.values() for each in records):
                try:
                    name, each = reading.read(record, run_id=run_id)
                except UnreadableError as error:
                    if self.lenient:
                        log.warning("passed over in the list of files, %s: %s", self.partition, error)
                        continue
                    raise self._torn(f"{error}; no task of the application has written that") from error
                yield record.offset(), name, each

    def _torn(self, why: str) -> RunError:
        return RunError(
            f"run {self.slice.run_id!r} cannot land its files: in {self.partition}, {why}",
            run_id=self.slice.run_id,
        )
