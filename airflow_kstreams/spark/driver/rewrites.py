"""Lets executors rewrite files of an Iceberg table for an upsert, one Spark job for its buckets."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from airflow_kstreams.batch.protocol.file_list import packed_file, unpacked_file
from airflow_kstreams.batch.run.tables.landing import SUMMARY
from airflow_kstreams.spark.driver.executors import most_hosts, spread
from airflow_kstreams.spark.driver.hosts import SparkHosts
from airflow_kstreams.spark.executor.report_rows import MadeRewrite
from airflow_kstreams.spark.executor.rewrite_host import RewriteHost, RewriteWork
from airflow_kstreams.streams.errors import RunError
from airflow_kstreams.streams.table_plan import TablePlan
from airflow_kstreams.streams.tables.table_port import RewrittenFiles, TableCommit, TableLook


class DriverRewrites:
    """Rewrites buckets on executors.

    :param hosts: the driver's session, which is open.
    """

    def __init__(self, hosts: SparkHosts) -> None:
        self._hosts = hosts

    def rewrite(
        self, spec: TablePlan, look: TableLook, upserts: Sequence[TableCommit]
    ) -> list[RewrittenFiles]:
        """Rewrite files, see ``RewriteBuckets``.

        :raises SparkSessionError: the session's JVM is gone, or its jobs were cancelled.
        :raises KStreamsError: files could not be rewritten.
        """
        # Buckets with many rows begin first.
        order = sorted(
            range(len(upserts)), key=lambda place: -sum(file.size for file in upserts[place].added)
        )
        works = [
            RewriteWork(place=place, files=tuple(map(packed_file, upserts[place].added))) for place in order
        ]
        host = RewriteHost(
            table=spec,
            application_id=upserts[0].application_id,
            sequence=upserts[0].sequence,
            snapshot=look.snapshot,
            works=spread(works, most_hosts(self._hosts.session)),
            client=self._hosts.client,
        )
        run_id = upserts[0].summary.get(f"{SUMMARY}run-id", "")
        outcomes = self._hosts.run(host, run_id=run_id)
        made = {each.rewritten.place: each.rewritten for each in outcomes if each.rewritten is not None}
        if made.keys() != {*order}:
            raise RunError(
                f"a Spark job of run {run_id!r} rewrote {len(made)} of {len(upserts)} buckets", run_id=run_id
            )
        # Files of the table have its other columns, too.
        whole = msgspec.structs.replace(spec, columns=look.columns)
        return [_unpacked(made[place], whole) for place in range(len(upserts))]


def _unpacked(made: MadeRewrite, table: TablePlan) -> RewrittenFiles:
    return RewrittenFiles(
        removed=made.removed,
        removed_bytes=made.removed_bytes,
        added=tuple(unpacked_file(data, table) for data in made.added),
    )
