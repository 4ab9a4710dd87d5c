"""Brings dead letters back from a DAG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_kstreams.batch.report.results import ReplayResult, replay_result
from airflow_kstreams.hooks.outcomes import airflow_outcomes
from airflow_kstreams.hooks.rendered import Reader, given, json_object, number, switch
from airflow_kstreams.operators.work.application_work import ApplicationOperator, ApplicationWork
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.printable import package_log

if TYPE_CHECKING:
    from airflow.sdk import Context

log = package_log(__name__)

__all__ = ["ReplayDeadLettersOperator"]


class ReplayDeadLettersOperator(ApplicationOperator):
    """Brings the records of an application's dead-letter topic back to the topics they came from, so that the
    next run processes them (``docs/explanation/time-and-errors.md``).

    Each letter comes back once, with key, value, time and headers as they were, whatever crashes: the same
    transactions record which letters came back. It replays the letters that no replay has brought back
    before, up to the topic's end at its first try; a retry goes on to the same end and the same limit. What
    ``where`` and ``limit`` leave stays for later replays.

    :param application_id: the application that wrote the dead letters. (templated)
    :param where: field -> text that it must be equal to for a letter to come back: ``topic``, ``partition``,
        ``offset``, ``node``, ``exception``, ``message``, ``key``, ``value.NAME`` for a field of JSON values.
        (templated)
    :param limit: largest number of records to bring back. (templated)
    :param accept_repeats: whether letters may come back again of which it is lost that they came back; an
        error asks for it, for one try. (templated)
    :param kafka_conn_id: connection to Kafka. (templated)
    :param settings: application settings by their dotted names; ``errors.dead.letter.queue.topic.name`` names
        the topic, if the application does. (templated)
    :param kwargs: arguments of every Airflow operator: ``task_id``, ``retries``, ...
    :return: a :class:`~airflow_kstreams.hooks.reports.ReplayResult`.

    >>> from airflow.sdk import DAG
    >>> with DAG("orders_replay", schedule=None) as dag:
    ...     replay = ReplayDeadLettersOperator(
    ...         task_id="replay",
    ...         application_id="orders",
    ...         where={"exception": "TimeoutError", "value.country": "de"},
    ...         limit=1_000,
    ...     )
    >>> print(*dag.task_ids)
    replay
    """

    template_fields: Sequence[str] = (
        *ApplicationOperator.template_fields,
        "where",
        "limit",
        "accept_repeats",
    )
    readers: ClassVar[Mapping[str, Reader]] = {
        **ApplicationOperator.readers,
        "where": json_object,
        "limit": number(1, optional=True),
        "accept_repeats": switch,
    }
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **ApplicationOperator.template_fields_renderers,
        "where": "json",
    }
    ui_color = "#ead5f7"

    def __init__(
        self,
        *,
        where: Mapping[str, Any] | str | None = None,
        limit: int | str | None = None,
        accept_repeats: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.where: Any = given(where)
        self.limit: Any = given(limit)
        self.accept_repeats: Any = given(accept_repeats)

    def execute(self, context: Context) -> ReplayResult:
        """Bring the letters back."""
        from airflow_kstreams.batch.replay.replay import DeadLetterReplay
        from airflow_kstreams.batch.replay.selection import Selection

        with airflow_outcomes():
            work = ApplicationWork.on_live(self, context, "brings dead letters back")
            selection = Selection.parse(self.where, self.limit)
            log.info("%s: bringing back %s", work.settings.dead_letter_topic, selection)
            done = DeadLetterReplay(
                work.cluster(),
                work.settings,
                replay_id=work.identity.work_id,
                selection=selection,
                accept_repeats=self.accept_repeats,
            ).run()
        if done.left_out:
            log.warning(
                "%s: not brought back: %s whose record did not fit",
                done.dead_letter_topic,
                counted(done.left_out, "letter"),
            )
        if done.expired:
            log.warning(
                "%s: deleted before their letters were replayed: %s",
                done.dead_letter_topic,
                counted(done.expired, "offset"),
            )
        for store, count in done.late.items():
            log.warning(
                "%s: %s came back after all their windows of %r had closed: the next run drops there "
                "what reaches it, and counts it as late",
                done.dead_letter_topic,
                counted(count, "record"),
                store,
            )
        if done.late_unknown:
            log.info(
                "%s: of %s it is not known whether their windows have closed: the next run counts as "
                "late what it drops",
                done.dead_letter_topic,
                counted(done.late_unknown, "record"),
            )
        log.info(
            "%s: %s brought back; passed by: %s of records that another letter brought back; left to later "
            "replays: %s that the selection leaves out%s",
            done.dead_letter_topic,
            counted(done.records, "record"),
            counted(done.repeated, "letter"),
            counted(done.unselected, "letter"),
            ", and all letters past the limit" if done.at_limit else "",
        )
        return replay_result(self.application_id, done)
