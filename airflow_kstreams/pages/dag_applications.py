"""Finds the applications that DAGs name, in the DAGs as Airflow's scheduler has serialized them.

No DAG file is imported here. A task is one of ours by the module of its operator, or, for a user's subclass,
by the link that all of our operators give their tasks. Where a task's ``application_id`` is a template, or
differs by map index, the serialized DAG has only the template: then the applications are those that Airflow
kept when it rendered the fields of the task's last instances. A task that never ran names none yet.

A serialized DAG is immutable: what was found in one is kept by its id, so that a look at all DAGs reads those
that are new. Only the names of tasks, applications and connections, and settings, are taken from it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from airflow.models.dag import DagModel
from airflow.models.dag_version import DagVersion
from airflow.models.dagrun import DagRun
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.serialized_dag import SerializedDagModel
from sqlalchemy import func, select

from airflow_kstreams.hooks.kafka import DEFAULT_KAFKA_CONN_ID
from airflow_kstreams.pages.access import SeenDag
from airflow_kstreams.pages.views import DagApplication
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import check_application_id

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_MODULES = ("airflow_kstreams.operators.", "airflow_kstreams.decorators.")
_LINK = "_link_KafkaRunLink"
_TEMPLATES = ("{{", "{%", "{#")
_KEPT_DAGS = 10_000
_AT_ONCE = 100
#: Number of task instances whose rendered fields are looked at.
_INSTANCES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTask:
    """A task of a serialized DAG that works on an application.

    :param task_id: id of the task.
    :param application_id: id of the application; None if only a rendered task has it.
    :param kafka_conn_id: id of the connection; None if only a rendered task has it.
    :param settings: application settings by their dotted names, as far as they stand in the DAG.
    """

    task_id: str
    application_id: str | None
    kafka_conn_id: str | None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether the serialized DAG says all."""
        return self.application_id is not None and self.kafka_conn_id is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedApplication:
    """An application that a DAG names.

    :param shown: the application, as pages show it.
    :param settings: its settings by their dotted names, as far as the DAG says them.
    """

    shown: DagApplication
    settings: Mapping[str, Any]


class SerializedApplications:
    """The tasks of serialized DAGs that work on applications."""

    def __init__(self) -> None:
        self._found: OrderedDict[Any, tuple[KafkaTask, ...]] = OrderedDict()
        self._lock = Lock()

    def of_all(self, session: Session) -> dict[str, tuple[KafkaTask, ...]]:
        """Return the tasks of all DAGs that have any; DAGs whose files are gone are left out."""
        newest = (
            select(DagVersion.dag_id, func.max(DagVersion.version_number).label("newest"))
            .join(SerializedDagModel, SerializedDagModel.dag_version_id == DagVersion.id)
            .group_by(DagVersion.dag_id)
            .subquery()
        )
        rows = session.execute(
            select(SerializedDagModel.id, SerializedDagModel.dag_id)
            .join(DagVersion, SerializedDagModel.dag_version_id == DagVersion.id)
            .join(
                newest,
                (newest.c.dag_id == DagVersion.dag_id) & (newest.c.newest == DagVersion.version_number),
            )
            .join(DagModel, DagModel.dag_id == SerializedDagModel.dag_id)
            .where(DagModel.is_stale.is_(False))
        ).all()
        tasks = self._tasks(session, [row.id for row in rows])
        return {row.dag_id: tasks[row.id] for row in rows if tasks[row.id]}

    def of_dag(self, session: Session, dag_id: str) -> tuple[KafkaTask, ...]:
        """Return the tasks of one DAG; none if there is no such DAG."""
        newest = session.scalar(
            select(SerializedDagModel.id)
            .join(DagVersion, SerializedDagModel.dag_version_id == DagVersion.id)
            .where(SerializedDagModel.dag_id == dag_id)
            .order_by(DagVersion.version_number.desc())
            .limit(1)
        )
        return () if newest is None else self._tasks(session, [newest])[newest]

    def _tasks(self, session: Session, ids: list[Any]) -> dict[Any, tuple[KafkaTask, ...]]:
        with self._lock:
            found = {each: self._found[each] for each in ids if each in self._found}
        new = [each for each in ids if each not in found]
        for at in range(0, len(new), _AT_ONCE):
            asked = select(SerializedDagModel).where(SerializedDagModel.id.in_(new[at : at + _AT_ONCE]))
            for row in session.scalars(asked):
                found[row.id] = tuple(kafka_tasks(row.data or {}))
                session.expunge(row)
        with self._lock:
            self._found.update({each: found.setdefault(each, ()) for each in new})
            while len(self._found) > _KEPT_DAGS:
                self._found.popitem(last=False)
        return found


def kafka_tasks(data: Mapping[str, Any]) -> Iterator[KafkaTask]:
    """Yield the tasks of a serialized DAG that work on an application.

    :param data: the document that Airflow keeps of the DAG.
    """
    for task in data.get("dag", {}).get("tasks", ()):
        fields = task.get("__var", task)
        links = fields.get("_operator_extra_links") or {}
        if str(fields.get("_task_module", "")).startswith(_MODULES) or _LINK in links.values():
            yield _task(fields)


def _task(fields: Mapping[str, Any]) -> KafkaTask:
    given = fields
    if fields.get("_is_mapped"):
        mapped = fields.get("expand_input", {}).get("value", {})
        varied = mapped.get("__var", {}) if isinstance(mapped, Mapping) else {}
        # What differs by map index is known once it is rendered, as is anything if the whole is another
        # task's result.
        whole = varied if isinstance(varied, Mapping) else {"application_id": None, "kafka_conn_id": None}
        given = {**_plain(fields.get("partial_kwargs", {})), **dict.fromkeys(whole)}
    conn_id = given.get("kafka_conn_id", DEFAULT_KAFKA_CONN_ID)
    return KafkaTask(
        task_id=str(fields.get("task_id", "")),
        application_id=_literal(given.get("application_id")),
        kafka_conn_id=_literal(conn_id),
        settings=_settings(given.get("settings")),
    )


def _plain(kwargs: Any) -> dict[str, Any]:
    """Return arguments as they are, whether Airflow has wrapped them or not."""
    found = kwargs.get("__var", kwargs) if isinstance(kwargs, Mapping) else {}
    return dict(found) if isinstance(found, Mapping) else {}


def _literal(value: Any) -> str | None:
    """Return a text that is no template; a number as text, as it names an application, too."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value)
    return None if not text or any(mark in text for mark in _TEMPLATES) else text


def _settings(value: Any) -> dict[str, Any]:
    """Return the settings of a DAG or of rendered fields; those that are templates are left out."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    found = _plain(value)
    return {
        name: each
        for name, each in found.items()
        if isinstance(each, bool | int | float) or (isinstance(each, str) and _literal(each) is not None)
    }


def applications_of(session: Session, dag: SeenDag, tasks: Iterable[KafkaTask]) -> list[NamedApplication]:
    """Return the applications of a DAG, by their ids, each with the tasks that work on it.

    :param tasks: the DAG's tasks that work on applications.
    """
    tasks = tuple(tasks)
    paused = session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == dag.dag_id))
    named: dict[str, list[KafkaTask]] = {}
    for task in [*(t for t in tasks if t.is_complete), *_rendered(session, dag.dag_id, tasks)]:
        if task.application_id is not None and _can_be(task.application_id):
            named.setdefault(task.application_id, []).append(task)
    return [
        NamedApplication(
            shown=DagApplication(
                application_id=application_id,
                dag_id=dag.dag_id,
                task_ids=tuple(dict.fromkeys(task.task_id for task in found)),
                kafka_conn_id=next((t.kafka_conn_id for t in found if t.kafka_conn_id), ""),
                team=dag.team,
                paused=bool(paused),
            ),
            settings=next((task.settings for task in found if task.settings), {}),
        )
        for application_id, found in sorted(named.items())
    ]


def _rendered(session: Session, dag_id: str, tasks: Iterable[KafkaTask]) -> Iterator[KafkaTask]:
    """Yield the tasks that the serialized DAG leaves open, as Airflow has rendered them, the newest first."""
    open_tasks = {task.task_id: task for task in tasks if not task.is_complete}
    if not open_tasks:
        return
    rows = session.execute(
        select(RenderedTaskInstanceFields.task_id, RenderedTaskInstanceFields.rendered_fields)
        .join(
            DagRun,
            (DagRun.dag_id == RenderedTaskInstanceFields.dag_id)
            & (DagRun.run_id == RenderedTaskInstanceFields.run_id),
        )
        .where(
            RenderedTaskInstanceFields.dag_id == dag_id,
            RenderedTaskInstanceFields.task_id.in_(list(open_tasks)),
        )
        .order_by(DagRun.id.desc())
        .limit(_INSTANCES)
    )
    for task_id, rendered in rows:
        fields, task = _plain(rendered), open_tasks[task_id]
        yield KafkaTask(
            task_id=task_id,
            application_id=task.application_id or _literal(fields.get("application_id")),
            kafka_conn_id=task.kafka_conn_id or _literal(fields.get("kafka_conn_id")),
            settings=task.settings or _settings(fields.get("settings")),
        )


def _can_be(application_id: str) -> bool:
    try:
        check_application_id(application_id)
    except ConfigError:
        return False
    return True
