"""Merges small files of a run on executors, before they are committed to tables."""

from __future__ import annotations

import msgspec

from airflow_kstreams.batch.protocol.file_list import packed_file, unpacked_file
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.tables.merge_plan import merged_of
from airflow_kstreams.spark.executor.machine_files import ClientSettings
from airflow_kstreams.spark.executor.report_rows import HostReport, MadeMerge, reported
from airflow_kstreams.streams.errors import KStreamsError


class MergeWork(msgspec.Struct, frozen=True, kw_only=True):
    """Files that are merged into one.

    :param place: number of the merge among those of the job.
    :param table: name of the table's sink.
    :param files: the files, packed one by one.
    """

    place: int
    table: str
    files: tuple[bytes, ...]


class MergeHost(msgspec.Struct, frozen=True, kw_only=True, tag="merges"):
    """All that an executor needs to merge files: plain data without secrets.

    :param slice: the part of the slice that all merges share.
    :param works: the merges of each Spark partition, made one after the other.
    :param client: as for a :class:`~airflow_kstreams.spark.executor.task_host.TaskHost`.
    """

    slice: Slice
    works: tuple[tuple[MergeWork, ...], ...]
    client: ClientSettings

    @property
    def names(self) -> list[list[str]]:
        """The names of each Spark partition's merges, for messages."""
        return [[f"merge-{work.place} of {work.table}" for work in works] for works in self.works]

    def run_partition(self, index: int) -> list[HostReport]:
        """Make the merges of one Spark partition."""
        from airflow_kstreams.tables.connections import open_tables
        from airflow_kstreams.tables.parquet.merging import files_merger

        merge_files = files_merger(open_tables(self.client.read_tables()))
        plans = {table.name: table for table in self.slice.plan.topology.tables}
        reports: list[HostReport] = []
        for work in self.works[index]:
            files = [unpacked_file(data, plans[work.table]) for data in work.files]
            try:
                made = merged_of(self.slice, work.table, files, merge_files)
            except KStreamsError as error:
                return [*reports, reported(error)]
            reports.append(HostReport(merged=MadeMerge(place=work.place, file=packed_file(made))))
        return reports
