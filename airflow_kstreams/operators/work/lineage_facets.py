"""Reports the topics that a run read and wrote: in the asset events of its task, and to OpenLineage, where
Airflow's OpenLineage provider is installed.

Airflow writes the events of a task's outlets when the task has succeeded. So only a task that finishes a run
may have outlets, and its events come after the finished marker.

Airflow's listener asks an operator for its facets in the task's own process, once it has begun and once it
has ended in any way. The operator answers from what it saw itself, so nothing here asks Kafka.
OpenLineage is imported only when it asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from airflow_kstreams.batch.report.lineage import (
    RunLineage,
    event_extra,
    lineage_of,
    snapshots_of,
)
from airflow_kstreams.streams.errors import ConfigError

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_kstreams.batch.ledger.run_summary import RunSummary
    from airflow_kstreams.batch.protocol.slice.slice import Slice
    from airflow_kstreams.streams.ports import ClusterPort
    from airflow_kstreams.streams.settings import ApplicationSettings

#: Names of the facets that are this package's own.
RUN_FACET, OFFSETS_FACET = "kstreams_run", "kstreams_offsets"


def announced(
    context: Context,
    outlets: Sequence[Any],
    summary: RunSummary,
    settings: ApplicationSettings,
    *,
    for_backfills: bool,
) -> list[Any]:
    """Write the run, and the offsets that it processed, into the events of every asset among the outlets.

    A cleared task writes the events again, with the same run id and offsets.

    :param outlets: outlets of the task; aliases are left alone, because their assets are not known.
    :param summary: summary of the finished run.
    :param settings: settings of the run.
    :param for_backfills: whether the task is made for backfills, so that its outlets are the assets that
        these write. The outlets of other tasks are those that the live application writes.
    :return: the outlets to update: none after a backfill that wrote other topics than these. An asset that
        has name or URI of a table that the run writes to has ``snapshot`` in its event, see
        :func:`~airflow_kstreams.hooks.reports.snapshots_of`; it is left out if the run made none.
    """
    if settings.keeps_to_interval and not for_backfills and not _writes_live_topics(settings):
        return []
    events, snapshots = context.get("outlet_events"), snapshots_of(summary)
    extra = event_extra(summary, backfill=settings.keeps_to_interval)
    updated: list[Any] = []
    for outlet in outlets:
        of_asset = dict(extra)
        if isinstance(outlet, Asset) and (table := _table_of(outlet, summary)):
            if table not in snapshots:
                continue
            of_asset["snapshot"] = snapshots[table]
        updated.append(outlet)
        if events is not None and isinstance(outlet, Asset) and not isinstance(outlet, AssetAlias):
            events[outlet].extra.update(of_asset)
    return updated


def _table_of(asset: Asset, summary: RunSummary) -> str:
    """Return the sink's name of the table that an asset is; empty if it is none of the run's."""
    return next(
        (
            name
            for name, landed in summary.tables.items()
            if asset.name in (name, landed.location) or asset.uri.rstrip("/") == landed.location
        ),
        "",
    )


def refuse_outlets(task_id: str, outlets: Sequence[Any]) -> None:
    """Refuse outlets of a task that does not finish the run: their events would come before the finished
    marker.

    :raises ConfigError: the task has outlets.
    """
    if outlets:
        raise ConfigError(
            f"task {task_id!r} has outlets and does not finish the run: its assets would be updated before "
            "what it writes is complete",
            fix="give the outlets to FinishRunOperator, to incremental_batch(outlets=...), or to a "
            "RunTopologyOperator with finish=True",
        )


def _writes_live_topics(settings: ApplicationSettings) -> bool:
    return any(name == other for name, other in (settings.outputs or {}).items())


class ReportsLineage:
    """An operator that works on one run of an application."""

    application_id: str
    _lineage: RunLineage | None = None

    def remember(self, run: RunSummary | Slice | None, cluster: ClusterPort) -> None:
        """Keep the topics and offsets that the run reads and writes.

        :param run: summary or slice of the run; None changes nothing.
        :param cluster: the Kafka cluster of the run.
        """
        if run is not None:
            # Only a cluster in memory has no address.
            self._lineage = lineage_of(run, getattr(cluster, "bootstrap", "memory"))

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any] | None:
        """Return the facets that name the application, before the work begins; None without OpenLineage."""
        return _facets(self.application_id, None)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Return topics in and out with offset ranges and counts; also when the task failed, as far as known.

        :param task_instance: the Airflow task; not needed.
        :return: the facets; None without OpenLineage.
        """
        return _facets(self.application_id, self._lineage)


def _facets(application_id: str, lineage: RunLineage | None) -> OperatorLineage[Any, Any] | None:
    try:
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import InputDataset, OutputDataset
        from openlineage.client.facet_v2 import input_statistics_input_dataset as input_statistics
        from openlineage.client.facet_v2 import output_statistics_output_dataset as output_statistics
    except ImportError:
        return None
    run_facet, offsets_facet = _own_facets()
    if lineage is None:
        return OperatorLineage(run_facets={RUN_FACET: run_facet(application_id=application_id)})

    def counted(records: int | None, facet: Any, name: str) -> dict[str, Any]:
        return {} if records is None else {name: facet(rowCount=records)}

    def written(namespace: str, name: str, records: int | None) -> OutputDataset:
        facet = output_statistics.OutputStatisticsOutputDatasetFacet
        return OutputDataset(
            namespace=namespace, name=name, outputFacets=counted(records, facet, "outputStatistics")
        )

    return OperatorLineage(
        inputs=[
            InputDataset(
                namespace=lineage.namespace,
                name=use.topic,
                inputFacets={
                    OFFSETS_FACET: offsets_facet(offsets={n: list(span) for n, span in use.offsets.items()}),
                    **counted(
                        use.records, input_statistics.InputStatisticsInputDatasetFacet, "inputStatistics"
                    ),
                },
            )
            for use in lineage.inputs
        ],
        outputs=[
            *(written(lineage.namespace, use.topic, use.records) for use in lineage.outputs),
            *(written(use.namespace, use.name, use.rows) for use in lineage.tables),
        ],
        run_facets={
            RUN_FACET: run_facet(
                application_id=application_id,
                run_id=lineage.run_id,
                generation=lineage.generation,
                finished=lineage.finished,
                records_in=lineage.records_in,
                records_out=lineage.records_out,
            )
        },
    )


@cache
def _own_facets() -> tuple[Any, Any]:
    """Return the classes of the run's facet and of an input's, which need OpenLineage to be defined."""
    import attrs
    from openlineage.client.facet_v2 import InputDatasetFacet, RunFacet

    @attrs.define
    class KStreamsRunFacet(RunFacet):
        """The run of the application that the Airflow task worked on."""

        application_id: str
        run_id: str | None = None
        generation: int | None = None
        finished: bool | None = None
        records_in: int | None = None
        records_out: int | None = None

    @attrs.define
    class KStreamsOffsetsFacet(InputDatasetFacet):
        """Partition -> ``[start, stop]``, half open."""

        offsets: dict[str, list[int]]

    return KStreamsRunFacet, KStreamsOffsetsFacet
