"""Identifies the run and the application that an Airflow task works on, the live one or one of a backfill's
own, and checks the task's settings.

A backfill run has its own application id, so its own consumer group, ledger, state and internal topics, and
writes the topics that the DAG names for it. It shares nothing with the live application but the input, which
both only read: they may run at the same time.

=====================  ==========================================  =======================================
topology               application id                              runs of one backfill
=====================  ==========================================  =======================================
without state          ``<app>-backfill-<12 hex>``: one per run    side by side, in any order
with state             ``<app>-backfill-<name>``: one per          in order, in a DAG of their own
                       backfill, named in its dag run conf
=====================  ==========================================  =======================================

The hexadecimal digits are of the hash of the run id, of the name if there is one, and of the topics that are
written: Airflow keeps the run id when it processes a date again, so a new name is what makes a finished run
run again; and two tasks that write different topics for one interval are two runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_kstreams.hooks.airflow_versions import AirflowSkipException, next_interval
from airflow_kstreams.hooks.rendered import given, interval_ms, optional_text, settings_object, texts_object
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings, check_application_id

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import DagRunProtocol

    from airflow_kstreams.streams.plan import TopologyPlan

log = package_log(__name__)

#: Airflow's name for the type of a backfill's dag runs.
_BACKFILL = "backfill"
#: Key of the backfill's name in the conf of its dag runs.
CONF_KEY = "backfill"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """The dag run behind a run of the application.

    :param run_id: id of the dag run; also the run's id in Kafka.
    :param clear_number: number of times that the dag run was cleared.
    :param try_number: number of the try of the Airflow task.
    :param owner: name of the task for messages.
    :param interval_ms: data interval of the dag run, epoch milliseconds; None if it has none.
    :param task: name of the Airflow task among all, with its map index.
    :param backfill: whether the dag run belongs to a backfill.
    :param dag_id: id of the DAG.
    :param backfill_name: the backfill's name, from its dag run conf under ``backfill``; empty without one.
    """

    run_id: str
    clear_number: int
    try_number: int
    owner: str
    interval_ms: tuple[int, int] | None = None
    task: str = ""
    backfill: bool = False
    backfill_name: str = ""
    dag_id: str = ""

    @classmethod
    def of(cls, context: Context) -> RunIdentity:
        """Read it from the task's context.

        :raises ConfigError: the task does not belong to a dag run, or the name of a backfill is no text.
        """
        airflow_task, dag_run = context.get("ti"), context.get("dag_run")
        if airflow_task is None or dag_run is None:
            raise ConfigError(
                "the operator was executed without a dag run",
                fix="run it through Airflow, or through dag.test()",
            )
        return cls(
            run_id=dag_run.run_id,
            clear_number=getattr(dag_run, "clear_number", None) or 0,
            try_number=airflow_task.try_number,
            owner=f"dag {airflow_task.dag_id}, task {airflow_task.task_id}, try {airflow_task.try_number}",
            interval_ms=_interval_ms(dag_run),
            backfill=getattr(dag_run, "run_type", None) == _BACKFILL,
            backfill_name=optional_text(
                f"dag_run.conf[{CONF_KEY!r}]", given((getattr(dag_run, "conf", None) or {}).get(CONF_KEY))
            ),
            dag_id=airflow_task.dag_id,
            task=f"{airflow_task.dag_id}.{airflow_task.task_id}[{getattr(airflow_task, 'map_index', -1)}]",
        )

    def refuse_backfill(self, what: str) -> None:
        """Refuse a task that acts on the live application.

        :param what: the action of the task, for the message.
        :raises ConfigError: the dag run belongs to a backfill.
        """
        if self.backfill:
            raise ConfigError(
                f"{self.owner} {what}, and dag run {self.run_id!r} is a backfill, which must not touch the "
                "live application",
                fix="put the task into a DAG of its own; a backfill's own application is reset by its own id",
            )

    @property
    def order(self) -> tuple[int, int]:
        """The order among attempts of one run: the higher one claims the run."""
        return (self.clear_number, self.try_number)

    @property
    def work_id(self) -> str:
        """The name of the task's work beside runs: the same for all its tries, another one once it is
        cleared.
        """
        return f"{self.task} {self.run_id} clear {self.clear_number}"


def _interval_ms(dag_run: DagRunProtocol) -> tuple[int, int] | None:
    start, end = dag_run.data_interval_start, dag_run.data_interval_end
    if start is None or end is None:
        return None
    return interval_ms(start, end)


_AUTOSTOP = "autostop.at"


def batch_settings(application_id: str, settings: Mapping[str, Any] | str | None) -> ApplicationSettings:
    """Check an operator's settings; ``autostop.at`` is ``eol`` unless given.

    :param settings: settings by their dotted names, or their JSON.
    :raises ConfigError: a setting is wrong, asks for continuous mode (an Airflow task has an end), or belongs
        to backfills only.
    """
    checked = ApplicationSettings.parse(
        application_id, {_AUTOSTOP: "eol", **settings_object("settings", given(settings))}
    )
    if checked.continuous:
        raise ConfigError(
            f"an Airflow task of application {application_id!r} cannot run continuously: {_AUTOSTOP} is "
            "unset",
            fix=f"leave {_AUTOSTOP} out of the operator's settings, or set it to 'eol'; a continuous run is "
            "started outside Airflow, as: python <application file> --application-id ...",
        )
    if checked.keeps_to_interval:
        raise ConfigError(
            f"{_AUTOSTOP} of application {application_id!r} is 'interval', which the operators set by "
            "themselves in a backfill: a scheduled run would move the application's offsets by time",
            fix=f"set {_AUTOSTOP} to 'interval_end' to cut each run at the end of its data interval",
        )
    return checked


_HEX_DIGITS = 12
_DEAD_LETTERS = "errors.dead.letter.queue.topic.name"


def settings_of_run(
    identity: RunIdentity,
    application_id: str,
    settings: Mapping[str, Any] | str | None,
    *,
    outputs: Mapping[str, str] | str | None,
    in_order: bool,
    replace: str = "",
) -> ApplicationSettings:
    """Return the settings, with the application id, that a dag run works with.

    :param application_id: id of the live application.
    :param settings: settings of the live application by their dotted names, or their JSON.
    :param outputs: the topology's name of a topic -> the topic that a backfill writes in its place; or their
        JSON.
    :param in_order: whether the DAG is made for the backfills of a stateful topology.
    :param replace: the setting ``backfill.replace`` of a backfill; empty for that of the live application.
    :raises ConfigError: a setting is wrong; or the run is a backfill without outputs, or without the name
        that it needs.
    :raises AirflowSkipException: the DAG is made for backfills, and the run is none.
    """
    live = batch_settings(application_id, settings)
    if not identity.backfill:
        if in_order:
            raise AirflowSkipException(
                f"Dag run {identity.run_id} is no backfill, and this DAG is there for backfills only"
            )
        return live
    written = texts_object("backfill_outputs", given(outputs))
    if not written:
        raise ConfigError(
            f"dag run {identity.run_id!r} is a backfill of application {application_id!r}, and nothing says "
            "which topics it may write",
            fix="give backfill_outputs={'topic': 'other topic'}, see docs/explanation/backfill.md",
        )
    own = {
        **live.to_dict(),
        "autostop.at": "interval",
        "output.topics": _text(written),
        "backfill.of": application_id,
        **({} if in_order else {"backfill.runs": "one"}),
        **({"backfill.replace": replace} if replace else {}),
    }
    letters = live.errors_dead_letter_queue_topic_name
    if letters:
        own[_DEAD_LETTERS] = written.get(letters, "")
    own_id = backfill_id(identity, application_id, in_order=in_order, written=written)
    return ApplicationSettings.parse(own_id, own)


def backfill_id(
    identity: RunIdentity, application_id: str, *, in_order: bool, written: Mapping[str, str]
) -> str:
    """Return the application id of a backfill run.

    :param application_id: id of the live application.
    :param written: the topology's name of a topic -> the topic that the run writes in its place.
    :raises ConfigError: the backfill needs a name and has none, or one that cannot name topics.
    """
    name = identity.backfill_name
    if not in_order:
        text = "\n".join((identity.run_id, *([name] if name else []), f"outputs {_text(written)}"))
        digits = hashlib.sha256(text.encode()).hexdigest()[:_HEX_DIGITS]
        return f"{application_id}-backfill-{digits}"
    if not name:
        raise ConfigError(
            f"dag run {identity.run_id!r} is a backfill of application {application_id!r}, which keeps "
            "state, and the backfill has no name: its runs share that state",
            fix=f'airflow backfill create ... --dag-run-conf \'{{"{CONF_KEY}": "NAME"}}\', a new name for '
            "each backfill; or the backfill_name of BackfillOperator",
        )
    check_application_id(f"{application_id}-backfill-{name}")
    return f"{application_id}-backfill-{name}"


def refuse_state_side_by_side(
    plan: TopologyPlan, identity: RunIdentity, application_id: str, *, in_order: bool
) -> None:
    """Refuse to backfill a stateful topology in runs that know nothing of each other.

    :raises ConfigError: the dag run is such a backfill.
    """
    if identity.backfill and plan.stateful and not in_order:
        stores = sorted({store for sub in plan.subtopologies for store in sub.stores})
        raise ConfigError(
            f"dag run {identity.run_id!r} is a backfill of application {application_id!r}, which keeps state "
            f"({', '.join(stores)}): its intervals must be processed in order, and this DAG's backfills run "
            "side by side",
            fix="backfill it through a DAG of its own, made by backfill_dag(...), or by a BackfillOperator "
            "with backfill_in_order=True, see docs/explanation/backfill.md",
        )


def warn_of_next_interval(timetable: Any, identity: RunIdentity) -> None:
    """Warn that the next interval of a backfill's DAG does not begin where this one ends: together its runs
    leave records out, or process them twice. Airflow's cron intervals are such where a zone's clocks are
    changed and the expression names minutes of the hour that is missing.

    :param timetable: timetable of the DAG; None if the interval is not one of its.
    """
    if timetable is None or not identity.backfill or identity.interval_ms is None:
        return
    start, end = (datetime.fromtimestamp(at / 1000, tz=UTC) for at in identity.interval_ms)
    following = next_interval(timetable, start, end)
    if following is None or following[0] == end:
        return
    begins, ends = (at.astimezone(UTC).isoformat() for at in sorted((end, following[0])))
    if following[0] < end:
        log.warning(
            "the records dated in [%s, %s) are in this data interval of the DAG and in the next one; give "
            'its timetable a zone whose clocks are not changed, such as timezone="UTC", and backfill anew',
            begins,
            ends,
        )
    else:
        log.warning(
            "the records dated in [%s, %s) are between this data interval of the DAG and the next one; give "
            'a BackfillOperator interval_start="%s" and interval_end="%s" to process them',
            begins,
            ends,
            begins,
            ends,
        )


def _text(outputs: Mapping[str, str]) -> str:
    return ",".join(f"{name}={other}" for name, other in sorted(outputs.items()))
