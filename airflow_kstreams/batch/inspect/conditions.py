"""Defines the conditions that a sensor can wait for, as plain data, and decides by a view of the cluster
whether one holds.

A condition asks a :class:`ClusterView` and nothing else. Sensors in a worker and triggers in the triggerer
evaluate the same condition on views of their own, so deferred or not they give the same answer. All
conditions are level-triggered: they tell a state, not an event, so a sensor that starts late misses nothing,
and a triggerer may restart at any time. The ledger decides about runs; the metadata topic holds the present
run only, and its markers are gone once the next run began.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from airflow_kstreams.batch.inspect.cluster_view import ClusterView, NewRecords
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.parked import parked_total, retry_topic
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import stops_of, unfinished_groups
from airflow_kstreams.batch.report.counts import due_text
from airflow_kstreams.batch.report.results import (
    NewDataResult,
    RunResult,
    StopOffsetsResult,
    iso_of,
    new_data_result,
    result_of_summary,
    stop_offsets_result,
)
from airflow_kstreams.streams.errors import ConfigError, UpstreamNotDoneError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.partitioning.partition_groups import first_few
from airflow_kstreams.streams.plan import convert, refuse_unknown_subtopology
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.settings import check_application_id

Json = dict[str, Any]


class RunFinished(msgspec.Struct, frozen=True, kw_only=True, tag="run-finished"):
    """A run is in the ledger.

    :param application_id: id of the application.
    :param run_id: id of the run; None for the run that finished last.
    :param interval_ms: data interval of the run, ``(start, end)`` in epoch milliseconds, instead of its id.
    :param allow_parked: whether the condition holds while records that the run left parked are still so; if
        not, runs after it must have processed them all.
    """

    application_id: str
    run_id: str | None = None
    interval_ms: tuple[int, int] | None = None
    allow_parked: bool = True

    def __str__(self) -> str:
        which = f"run {self.run_id}" if self.run_id else "a finished run"
        if self.interval_ms is not None:
            which = "the run for data interval {} to {}".format(*map(iso_of, self.interval_ms))
        processed = "" if self.allow_parked else ", of which nothing is parked"
        return f"{which} of application {self.application_id}{processed}"

    def evaluate(self, view: ClusterView) -> RunResult | None:
        """Return the run's result once it is finished and, unless ``allow_parked``, all that it left parked
        is processed.
        """
        check_application_id(self.application_id)
        ledger = view.ledger(self.application_id)
        summary = self._find(ledger)
        if summary is None or (not self.allow_parked and ledger.parked_since(summary)):
            return None
        return result_of_summary(summary)

    def still_parked(self, view: ClusterView) -> str:
        """Return a text on the records that the finished run left parked; empty if there are none, or they
        are allowed.
        """
        ledger = view.ledger(self.application_id)
        summary = None if self.allow_parked else self._find(ledger)
        return "" if summary is None else still_parked(ledger, summary)

    def _find(self, ledger: Ledger) -> RunSummary | None:
        if self.interval_ms is not None:
            return ledger.find_interval(self.interval_ms)
        return ledger.last() if self.run_id is None else ledger.find(self.run_id)


class NewData(msgspec.Struct, frozen=True, kw_only=True, tag="new-data"):
    """Records have arrived that no run has processed and no slice under way holds.

    They are those at or past where the next run would start: at the committed offsets, which a reset or a
    continuous run moves, too; else where the last run stopped. Records that the last run left parked are
    enough, however few, once the first of them is due.

    :param application_id: id of the application.
    :param topics: names of its input topics; empty for those of its last run.
    :param min_records: number of committed records that is enough.
    :param older_than_ms: milliseconds; one record whose timestamp lies as far back is enough. None waits for
        ``min_records``.
    """

    application_id: str
    topics: tuple[str, ...] = ()
    min_records: int = 1
    older_than_ms: int | None = None

    def __str__(self) -> str:
        aged = f", or a record older than {self.older_than_ms} ms," if self.older_than_ms is not None else ""
        return f"{counted(self.min_records, 'new record')}{aged} for application {self.application_id}"

    def evaluate(self, view: ClusterView) -> NewDataResult | None:
        """Return the new records' counts once there are enough of them."""
        ledger, held, partitions = _inputs_seen(view, self.application_id, self.topics)
        processed = self._processed(view, ledger, held, partitions)
        due = {} if held is not None else self._due(ledger, view.now_ms())
        enough_offsets = view.offsets_left(partitions, processed) >= self.min_records
        if not (due or enough_offsets or self.older_than_ms is not None):
            return None  # each record takes an offset
        found = view.new_records(self.application_id, partitions, processed, at_most=self.min_records)
        now_ms = view.now_ms()
        oldest_ms = now_ms if found.oldest_ms is None else found.oldest_ms
        if not (due or self._enough(found, now_ms)):
            return None
        return new_data_result(self.application_id, {**found.per_topic, **due}, oldest_ms)

    def _enough(self, found: NewRecords, now_ms: int) -> bool:
        if not found.total or found.oldest_ms is None:
            return False
        aged = self.older_than_ms is not None and now_ms - found.oldest_ms >= self.older_than_ms
        return found.total >= self.min_records or aged

    def _due(self, ledger: Ledger, now_ms: int) -> Mapping[str, int]:
        """Return the number of parked records that wait for the next run, by retry topic, if the first of
        them is due.
        """
        last = ledger.last()
        if last is None or ledger.current_continuous is not None:
            return {}
        if last.parked_due_ms is not None and last.parked_due_ms > now_ms:
            return {}
        parked = parked_total(ledger.past.parked)
        # Where the number is not known, there may be one.
        return {retry_topic(self.application_id, node): 1 if n is None else n for node, n in parked.items()}

    def _processed(
        self, view: ClusterView, ledger: Ledger, held: Slice | None, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the offset up to which runs have read each partition, the run under way included."""
        stops = {} if held is None else {part.topic_partition: part.stop_offset for part in held.inputs}
        free = [tp for tp in partitions if tp not in stops]
        moving = ledger.current_continuous is not None
        committed = view.committed(self.application_id, free, moving=moving) if free else {}
        return {**ledger.stops, **committed, **stops}


class StopOffsetsReached(msgspec.Struct, frozen=True, kw_only=True, tag="stop-offsets-reached"):
    """Every task of one subtopology is at its stop offsets, and has notified those that read what it wrote.

    :param application_id: id of the application.
    :param run_id: id of the run.
    :param subtopology: id of the subtopology, as ``airflow-kstreams describe`` shows it.
    """

    application_id: str
    run_id: str
    subtopology: int

    def __str__(self) -> str:
        return f"subtopology {self.subtopology} of run {self.run_id} of application {self.application_id}"

    def evaluate(self, view: ClusterView) -> StopOffsetsResult | None:
        """Return the stop offsets once they are reached; a finished run has reached them all."""
        check_application_id(self.application_id)
        facts = view.facts(self.application_id, unless_finished=self.run_id)
        summary = facts.ledger.find(self.run_id)
        if summary is not None:
            ids = [sub.id for sub in summary.topics]
            refuse_unknown_subtopology(self.application_id, self.subtopology, ids)
            return stop_offsets_result(self.application_id, self.run_id, self.subtopology, {})
        slice_ = facts.under_way
        if slice_ is None or slice_.run_id != self.run_id:
            return None
        ids = [sub.id for sub in slice_.plan.topology.subtopologies]
        refuse_unknown_subtopology(self.application_id, self.subtopology, ids)
        if slice_.plan.empty:
            return stop_offsets_result(self.application_id, self.run_id, self.subtopology, {})
        try:
            group = view.group(self.application_id)
            if unfinished_groups(slice_, self.subtopology, folded=facts.metadata, reader=group):
                return None
            sources = slice_.plan.topology.subtopology(self.subtopology).sources
            stops = stops_of(facts.metadata, slice_, sources)
        except UpstreamNotDoneError:
            return None
        return stop_offsets_result(self.application_id, self.run_id, self.subtopology, stops)


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True, tag="caught-up"):
    """An application has processed its inputs, but for at most ``max_records`` records.

    Records before the committed offsets are processed: a slice under way counts up to where its tasks have
    committed. It holds of a continuous application, too, which never finishes a run.

    :param application_id: id of the application.
    :param topics: names of its input topics; empty for those of its last run.
    :param max_records: number of committed records that may be left.
    """

    application_id: str
    topics: tuple[str, ...] = ()
    max_records: int = 0

    def __str__(self) -> str:
        return f"application {self.application_id} with {counted(self.max_records, 'record')} left, or fewer"

    def evaluate(self, view: ClusterView) -> NewDataResult | None:
        """Return the counts of the records that are left once they are few enough."""
        ledger, _, partitions = _inputs_seen(view, self.application_id, self.topics)
        # Tasks commit all the time, and neither ledger nor metadata say so.
        committed = view.committed(self.application_id, partitions, moving=True)
        processed = {**ledger.stops, **committed}
        left = view.new_records(self.application_id, partitions, processed, at_most=self.max_records + 1)
        if left.total > self.max_records:
            return None
        return new_data_result(self.application_id, left.per_topic, left.oldest_ms or 0)


Condition = RunFinished | NewData | CaughtUp | StopOffsetsReached


def _inputs_seen(
    view: ClusterView, application_id: str, topics: Collection[str]
) -> tuple[Ledger, Slice | None, list[TopicPartition]]:
    """Return the ledger, the slice under way, and the partitions of the inputs.

    :param topics: names of the input topics; empty for those of the last run.
    """
    check_application_id(application_id)
    facts = view.facts(application_id)
    ledger, held = facts.ledger, facts.under_way
    return ledger, held, view.partitions(topics or _inputs_of_last_run(view, application_id, ledger, held))


def _inputs_of_last_run(
    view: ClusterView, application_id: str, ledger: Ledger, held: Slice | None
) -> Collection[str]:
    if held is not None:
        return sorted({part.topic for part in held.inputs})
    if ledger.current_continuous is not None:
        return ledger.current_continuous.plan.topology.inputs
    last = ledger.newest_entry
    if last is None:
        alike = view.ids_alike(application_id) or ""
        raise ConfigError(
            f"application {application_id!r} has not run yet, so its input topics are not known",
            fix=f"name them: topics=[...]; or correct application_id{alike}",
        )
    return sorted(last.input_topics)


def why_not(condition: Condition, view: ClusterView) -> str:
    """Return the reasons for which a condition does not hold yet: that the cluster has no topics of the
    application, the records that are parked, the owner of the application's lease, and the time of its last
    renewal; empty when there are none. One look cannot say whether the owner is alive.
    """
    unknown = never_run(condition, view)
    if unknown:
        return unknown
    parked = condition.still_parked(view) if isinstance(condition, RunFinished) else ""
    ledger = view.ledger(condition.application_id)
    lease = ledger.held_lease
    if lease is None:
        return parked
    renewed = iso_of(ledger.lease_written_ms)
    owner = f"{lease.owner} holds the lease for run {lease.owner_run_id} and renewed it last at {renewed}"
    return f"{parked}; {owner}" if parked else owner


def never_run(condition: Condition, view: ClusterView) -> str:
    """Return a text if no run of the application has begun on the cluster, with the ids that are spelt alike;
    else an empty one. Its first run may still come.
    """
    app = condition.application_id
    alike = view.ids_alike(app)
    return "" if alike is None else f"no run of application {app!r} has begun on this cluster{alike}"


def condition_to_json(condition: Condition) -> Json:
    """Return a condition in the form that a trigger carries."""
    data: Json = msgspec.to_builtins(condition)
    return data


def condition_from_json(data: Json) -> Condition:
    """Return the condition that a trigger carries.

    :raises ConfigError: this version does not know the condition.
    """
    try:
        condition: Condition = convert(data, Condition, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"the triggerer cannot read what the deferred sensor waits for: {error}",
            fix="install the same airflow_kstreams version on workers and triggerers",
        ) from None
    return condition


def still_parked(ledger: Ledger, run: RunSummary) -> str:
    """Return a text with the number of parked records at each node, and the time at which they are due; empty
    if all that a run left parked is processed.

    :param run: a finished run.
    """
    parked = ledger.parked_since(run)
    last = ledger.last()
    if not parked or last is None:
        return ""
    places = [
        f"{'an unknown number' if count is None else count} at {node} "
        f"({retry_topic(run.application_id, node)}-{group})"
        for node, by_group in sorted(parked.items())
        for group, count in sorted(by_group.items())
    ]
    return (
        f"records are parked as of run {last.run_id!r}: {first_few(places)}; {due_text(last.parked_due_ms)}"
    )
