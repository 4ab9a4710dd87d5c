"""Rewrites files of an Iceberg table for an upsert on executors, bucket by bucket."""

from __future__ import annotations

import msgspec

from airflow_kstreams.batch.protocol.file_list import packed_file, unpacked_file
from airflow_kstreams.spark.executor.machine_files import ClientSettings
from airflow_kstreams.spark.executor.report_rows import HostReport, MadeRewrite, reported
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import TableCommit


class RewriteWork(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket to rewrite.

    :param place: number of the bucket among those of the job.
    :param files: its staged files, packed one by one.
    """

    place: int
    files: tuple[bytes, ...]


class RewriteHost(msgspec.Struct, frozen=True, kw_only=True, tag="rewrites"):
    """All that an executor needs to rewrite buckets: plain data without secrets.

    :param table: the table.
    :param application_id: the application, for names of files.
    :param sequence: number of the commit, for names of files.
    :param snapshot: the snapshot that files are rewritten for; empty for a table without one.
    :param works: the buckets of each Spark partition, rewritten one after the other.
    :param client: as for a :class:`~airflow_kstreams.spark.executor.task_host.TaskHost`.
    """

    table: TablePlan
    application_id: str
    sequence: int
    snapshot: str
    works: tuple[tuple[RewriteWork, ...], ...]
    client: ClientSettings

    @property
    def names(self) -> list[list[str]]:
        """The names of each Spark partition's buckets, for messages."""
        return [[f"bucket-{work.place} of {self.table.name}" for work in works] for works in self.works]

    def run_partition(self, index: int) -> list[HostReport]:
        """Rewrite the buckets of one Spark partition."""
        from airflow_kstreams.tables.connections import open_tables

        opened = open_tables(self.client.read_tables())
        reports: list[HostReport] = []
        for work in self.works[index]:
            upsert = TableCommit(
                application_id=self.application_id,
                sink=self.table.name,
                sequence=self.sequence,
                added=[unpacked_file(data, self.table) for data in work.files],
                key_column=self.table.key_column,
            )
            try:
                made = opened.rewritten(self.table, self.snapshot, upsert)
            except KStreamsError as error:
                return [*reports, reported(error)]
            rewritten = MadeRewrite(
                place=work.place,
                removed=made.removed,
                removed_bytes=made.removed_bytes,
                added=tuple(map(packed_file, made.added)),
            )
            reports.append(HostReport(rewritten=rewritten))
        return reports
