"""Merges small files of a run: few bytes in the driver, which needs no job for it, more on executors."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_kstreams.batch.protocol.file_list import packed_file, unpacked_file
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import without_partitions
from airflow_kstreams.batch.run.tables.merge_plan import Merge, made_here
from airflow_kstreams.spark.driver.executors import most_hosts, spread
from airflow_kstreams.spark.driver.hosts import SparkHosts
from airflow_kstreams.spark.executor.merge_host import MergeHost, MergeWork
from airflow_kstreams.streams.errors import RunError
from airflow_kstreams.streams.tables.table_port import FileFacts, TablesPort

#: Most bytes, and files, that the driver merges itself.
_HERE_BYTES, _HERE_FILES = 16 * 1024 * 1024, 64


class DriverMerges:
    """Makes merges of a run's files.

    :param hosts: the driver's session, which is open.
    :param tables: opens the tables.
    """

    def __init__(self, hosts: SparkHosts, tables: TablesPort) -> None:
        self._hosts = hosts
        self._tables = tables

    def make(self, slice_: Slice, merges: Sequence[Merge]) -> list[FileFacts]:
        """Make merges, and return the new file of each, in their order.

        :raises SparkSessionError: the session's JVM is gone, or its jobs were cancelled.
        :raises KStreamsError: files could not be merged.
        """
        many = sum(len(merge.files) for merge in merges) > _HERE_FILES
        if not many and sum(merge.size for merge in merges) <= _HERE_BYTES:
            from airflow_kstreams.tables.parquet.merging import files_merger

            return [*made_here(files_merger(self._tables))(slice_, merges)]
        return self._on_spark(slice_, merges)

    def _on_spark(self, slice_: Slice, merges: Sequence[Merge]) -> list[FileFacts]:
        # Those with many bytes begin first, each in a Spark task of its own while there are few.
        order = sorted(range(len(merges)), key=lambda place: -merges[place].size)
        works = [
            MergeWork(
                place=place,
                table=merges[place].table,
                files=tuple(packed_file(file) for file in merges[place].files.values()),
            )
            for place in order
        ]
        host = MergeHost(
            slice=without_partitions(slice_),
            works=spread(works, most_hosts(self._hosts.session)),
            client=self._hosts.client,
        )
        outcomes = self._hosts.run(host, run_id=slice_.run_id)
        made = {each.merged.place: each.merged.file for each in outcomes if each.merged is not None}
        if made.keys() != {*order}:
            raise RunError(
                f"a Spark job of run {slice_.run_id!r} made {len(made)} of {len(merges)} merges",
                run_id=slice_.run_id,
            )
        plans = {table.name: table for table in slice_.plan.topology.tables}
        return [unpacked_file(made[place], plans[merge.table]) for place, merge in enumerate(merges)]
