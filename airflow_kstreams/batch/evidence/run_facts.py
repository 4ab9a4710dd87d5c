"""Joins the two logs of an application, the ledger and the metadata topic, into the facts of its runs.

Rule: a command, an operator, a sensor's look or a coordinator's decision reads both logs once, joins them
here, and asks this value from then on. The third place, the committed offsets, is read where it is needed,
for only the first two say of which partitions (:mod:`airflow_kstreams.batch.evidence.prior_runs`).

Invariant: the ledger is read first, so the metadata topic is never the older one of the two. Both are read to
the last stable offset: of a transaction that writes both, neither log shows anything before it is committed.

Why a reader between two writes sees nothing wrong. Begin, finish and reset write both logs in one
transaction of the coordinator. Once a coordinator has claimed the id (``init_transactions``), the broker has
ended the transaction of the former one and takes no other, so both reads see the same transactions. What the
coordinator then decides from this value it writes under the same claim; if another coordinator has claimed
the id since, the broker refuses the write. Without a claim, a transaction may commit between the two reads.
Then the metadata topic says

- that a run is under way of which the ledger does not know yet: it began in between, and is under way;
- that a run is finished of which the ledger does not know yet: it finished in between. The reader takes it as
  finished, without its summary, or looks again where it needs that;
- nothing, where the ledger knows a run: a reset, or a continuous run, came in between. The reader says what
  held at its first read.

So each statement held at one of the two reads. To compare the logs with each other
(:meth:`RunFacts.disagreements`) takes the claim, or a second value that equals the first.

Void: a continuous run makes void what the metadata topic holds, and then deletes the topic. While the ledger
says that such a run is the current one, :attr:`RunFacts.metadata` says nothing of any run. So a crash before
the deletion changes no answer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

from airflow_kstreams.batch.evidence.complete_logs import find_truncated_ledger, find_truncated_metadata
from airflow_kstreams.batch.evidence.contradictions import find_contradictions
from airflow_kstreams.batch.evidence.known_applications import refuse_unknown_application
from airflow_kstreams.batch.ledger.history import Histories
from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.protocol.logs.data_loss import Loss
from airflow_kstreams.batch.protocol.slice.metadata import Folded, RunState, read_metadata
from airflow_kstreams.batch.protocol.slice.slice import Slice, transactional_ids
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, ReaderPort


@dataclass(frozen=True, slots=True)
class LastTasks:
    """The tasks of an application's last run, which may still be at work.

    :param transactional_ids: transactional id of each of these tasks; None when neither a run nor partition
        groups are recorded.
    :param topologies: topologies that these tasks may run, where they are known.
    """

    transactional_ids: tuple[str, ...] | None
    topologies: tuple[TopologyPlan, ...]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Holds the facts that ledger and metadata topic give of an application's runs.

    :param application_id: id of the application.
    :param ledger: the application's ledger, read before the metadata topic, or under the coordinator's claim.
    :param written: the content of the metadata topic, void or not.
    """

    application_id: str
    ledger: Ledger
    written: Folded

    @classmethod
    def read(  # noqa: PLR0913 - all but four have defaults
        cls,
        cluster: ClusterPort,
        application_id: str,
        *,
        admin: AdminPort,
        reader: ReaderPort,
        sources: Collection[str] = (),
        unless_finished: str = "",
        ledger_wait_ms: int = 0,
        metadata_wait_ms: int = 0,
        clock: Clock | None = None,
    ) -> Self:
        """Read both logs without a claim, as far as they are stable.

        :param sources: topics that keys of a foreign writer may name.
        :param unless_finished: id of a run. If the ledger has it as finished, the metadata topic is not read,
            and counts as that of a finished run.
        :param ledger_wait_ms: milliseconds to wait for open transactions that hide committed records of the
            ledger; 0 takes what is visible already.
        :param metadata_wait_ms: the same wait for the metadata topic.
        :raises OpenTransactionError: a transaction that stays open hides committed records.
        :raises KafkaClientError: the broker does not answer, or a log cannot be read.
        """
        ledger = read_ledger(
            cluster, application_id, admin=admin, reader=reader, wait_ms=ledger_wait_ms, clock=clock
        )
        if unless_finished and ledger.is_finished(unless_finished):
            return cls(application_id, ledger, Folded(state=RunState.FINISHED))
        written = read_metadata(
            cluster,
            application_id,
            admin=admin,
            reader=reader,
            topics=sources,
            wait_ms=metadata_wait_ms,
            clock=clock,
        )
        return cls(application_id, ledger, written)

    @property
    def metadata(self) -> Folded:
        """The content of the metadata topic; empty once a continuous run has begun after it."""
        if self.ledger.current_continuous is None:
            return self.written
        written = self.written
        return Folded(
            state=RunState.NEW, live_keys=written.live_keys, reported=written.reported, log=written.log
        )

    @property
    def state(self) -> RunState:
        """The state of the application's batch runs."""
        return self.metadata.state

    @property
    def reported(self) -> Histories:
        """The failures that Airflow tasks have reported and that no begin has put into the ledger yet."""
        reported = self.written.reported
        return Histories.decode(reported) if reported else Histories()

    @property
    def histories(self) -> Histories:
        """What happened to the last few runs that have not finished, reported failures included."""
        return self.ledger.histories().with_reported(self.reported, finished=self.ledger.is_finished)

    @property
    def run_id(self) -> str:
        """The run whose slice the metadata topic holds, finished or not; empty without one of ours."""
        slice_ = self.metadata.slice
        return "" if slice_ is None else slice_.run_id

    @property
    def under_way(self) -> Slice | None:
        """The slice that is not finished; None between two runs, and when another program wrote it."""
        metadata = self.metadata
        return metadata.slice if metadata.state is RunState.RUNNING else None

    @property
    def foreign_run(self) -> bool:
        """Whether a run is under way that another program began in the bare format."""
        metadata = self.metadata
        return metadata.state is RunState.RUNNING and metadata.slice is None

    @property
    def last_work(self) -> Slice | None:
        """The slice of the last run, finished or not, or the current continuous run in the same form."""
        continuous = self.ledger.current_continuous
        return self.metadata.slice if continuous is None else continuous.slice

    @property
    def lost_run(self) -> str:
        """The run that took the lease and never finished, while the metadata topic says nothing of it; empty
        without one.
        """
        lease = self.ledger.lease
        if self.state is not RunState.NEW or lease is None or self.ledger.is_finished(lease.owner_run_id):
            return ""
        return lease.owner_run_id

    @property
    def begun_since(self) -> bool:
        """Whether a run has begun after the last one that the ledger has as finished."""
        continuous = self.ledger.current_continuous is not None
        return continuous or self.state is RunState.RUNNING or bool(self.lost_run)

    @property
    def last_tasks(self) -> LastTasks:
        """The tasks of the continuous run or of the slice, or those of the recorded partition groups.

        The marker of a run may be gone (stop offsets deleted) or another writer's; the groups give the ids
        all the same.
        """
        owners = [
            owner for owner in (self.ledger.current_continuous, self.metadata.slice) if owner is not None
        ]
        ids: tuple[str, ...] | None = None
        if owners:
            ids = () if owners[0].plan.empty else owners[0].plan.task_ids
        elif recorded := self.ledger.assignment.subtopologies:
            counts = {sub: len(entry.by_group) for sub, entry in recorded.items()}
            ids = transactional_ids(self.application_id, counts)
        return LastTasks(ids, tuple(owner.plan.topology for owner in owners))

    def disagreements(self, *, metadata_topic_kept: bool = True) -> list[Loss]:
        """Return the facts in which the two logs disagree, and the ways in which they are not whole.

        :param metadata_topic_kept: whether the metadata topic must be the one that earlier runs wrote, and
            hold what they wrote; not where a person began the application anew, nor where a continuous run
            is about to delete it.
        """
        known = (self.application_id, self.ledger, self.metadata)
        kept = find_truncated_metadata(*known) if metadata_topic_kept else []
        return [*find_truncated_ledger(*known), *kept, *find_contradictions(*known)]


def known_facts(
    cluster: ClusterPort, application_id: str, admin: AdminPort, reader: ReaderPort, clock: Clock
) -> RunFacts:
    """Read the facts of an application's runs.

    :raises ConfigError: the cluster has nothing of an application with this id.
    """
    facts = RunFacts.read(cluster, application_id, admin=admin, reader=reader, clock=clock)
    if facts.ledger.unwritten and facts.last_work is None:
        refuse_unknown_application(admin, application_id)
    return facts
