"""Says what is wrong with an application, or a run, and the way out: in words, by a link, by a command to
copy, or by a button that asks Airflow.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from airflow_kstreams.inspect import (
    Failure,
    NextRun,
    RunInFull,
    SeenApplication,
    SeenLag,
    SeenLetters,
    SeenRun,
    Suspicion,
)
from airflow_kstreams.inspect.tables_of import odd_text
from airflow_kstreams.pages.views.frame import DagApplication, KeptRun
from airflow_kstreams.pages.views.links import Action, Links
from airflow_kstreams.streams.naming.commands import start_over_flags

#: States of a run after which its DAG run may be cleared: Airflow tries it again.
_TO_CLEAR = ("failed", "unfinished", "taken back")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLink:
    """A link to another page.

    :param address: its address, made by ``Links``.
    :param text: the link's text.
    :param airflow: whether the page is one of Airflow's own.
    """

    address: str
    text: str
    airflow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that is wrong, or odd.

    :param what: what is wrong, a sentence.
    :param way_out: what to do, a sentence; empty where a link or a button says it.
    :param grave: True if runs fail, or do not come; False if it is odd only.
    :param link: a page that says more, or where it can be mended.
    :param action: a request to Airflow that mends it.
    :param command: a command that mends it, to be copied.
    """

    what: str
    way_out: str = ""
    grave: bool = False
    link: PageLink | None = None
    action: Action | None = None
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedCommand:
    """A command that a person copies into a terminal.

    :param name: what it does, in a word or two.
    :param text: what it does, a sentence.
    :param command: the command; it shows what would be done until ``--dry-run`` is taken away.
    """

    name: str
    text: str
    command: str


def of_application(
    app: DagApplication, seen: SeenApplication | None, lag: SeenLag | None, links: Links
) -> Iterator[Trouble]:
    """Yield what is wrong with an application, the gravest first."""
    if seen is not None and seen.failed is not None:
        yield Trouble(
            what=f"Run {seen.failed} has failed.",
            grave=True,
            link=PageLink(address=links.run(app, seen.failed), text="Why, and what to do"),
            action=links.clear(app.dag_id, seen.failed, only_failed=True),
        )
    yield from of_lag(app, lag, links)
    if seen is not None and seen.last is not None:
        address = links.run(app, seen.last.run_id)
        for warning in seen.last.warnings:
            yield Trouble(what=warning, link=PageLink(address=address, text="The run"))


def of_lag(app: DagApplication, lag: SeenLag | None, links: Links) -> Iterator[Trouble]:
    """Yield what is odd about what waits."""
    waiting = lag is not None and lag.lag > 0
    if app.paused:
        yield Trouble(
            what="The DAG is paused" + (", and offsets wait." if waiting else "."),
            way_out="Unpause it in Airflow.",
            grave=waiting,
            link=PageLink(address=links.airflow_dag(app.dag_id), text="DAG", airflow=True),
        )
    if lag is None:
        return
    yield from _odd(lag.suspicions)
    if gone := sum(topic.gone for topic in lag.topics):
        yield Trouble(
            what=f"Partitions that it has read and that Kafka does not have any more: {gone:,}.",
            way_out="Reset the application, or name the new topic.",
            grave=True,
        )
    if lag.parked:
        yield Trouble(
            what=f"Parked records that wait: {lag.parked:,}.",
            way_out="The next run tries those that are due.",
        )


def of_runs(app: DagApplication, newest: SeenRun | None, links: Links) -> Iterator[Trouble]:
    """Yield what is wrong with the newest run of an application."""
    if newest is None:
        yield no_run(app, links)
        return
    link = PageLink(address=links.run(app, newest.run_id), text="The run")
    if newest.failure is not None:
        yield _failed(newest.failure, link=link, action=_clear(app, newest, links))
    elif newest.state == "unfinished":
        yield Trouble(
            what=f"Run {newest.run_id} is unfinished, and no driver works on it.",
            way_out="Airflow's next try goes on with its slice.",
            grave=True,
            link=link,
            action=_clear(app, newest, links),
        )
    yield from _odd(newest.suspicions)
    yield from (Trouble(what=warning, link=link) for warning in newest.warnings)


def no_run(app: DagApplication, links: Links) -> Trouble:
    """Return that an application has not run yet."""
    return Trouble(what="No run yet.", way_out="Trigger the DAG.", action=links.trigger(app.dag_id))


def of_kept(run: KeptRun, links: Links) -> Iterator[Trouble]:
    """Yield that a task has failed, as Airflow keeps it."""
    if run.state in ("failed", "upstream_failed"):
        address = links.airflow_run(run.dag_id, run.airflow_run_id)
        yield Trouble(
            what=f"Task {run.task_id} of DAG run {run.airflow_run_id} has failed.",
            way_out="Read its log in Airflow: its last lines say why, and what to do.",
            grave=True,
            link=PageLink(address=address, text="DAG run", airflow=True),
            action=links.clear(run.dag_id, run.airflow_run_id, only_failed=True),
        )


def of_run(app: DagApplication, found: RunInFull, links: Links) -> Iterator[Trouble]:
    """Yield what is wrong with a run."""
    run = found.run
    failure = run.failure
    if failure is None and found.history is not None and run.state in _TO_CLEAR:
        failure = found.history.failure
    if failure is not None:
        yield _failed(failure, action=_clear(app, run, links))
    elif run.state in _TO_CLEAR:
        what = "A reset has taken this run back." if run.state == "taken back" else "It is not finished."
        yield Trouble(
            what=what, way_out="Airflow can run it again.", grave=True, action=_clear(app, run, links)
        )
    if found.audit is not None and found.audit.missing:
        yield Trouble(
            what=f"Records written between subtopologies and not read: {found.audit.missing:,}.",
            way_out="Look at the table of records below.",
            grave=True,
        )
    yield from _odd(run.suspicions)
    yield from (Trouble(what=warning) for warning in run.warnings)


def of_plan(found: NextRun) -> Iterator[Trouble]:
    """Yield what would refuse the next run, and its warnings."""
    if found.refused is not None:
        yield _failed(found.refused)
    yield from (Trouble(what=warning) for warning in found.warnings)


def of_letters(app: DagApplication, letters: SeenLetters | None) -> Iterator[Trouble]:
    """Yield that dead letters wait."""
    waiting = 0 if letters is None else sum(group.waiting for group in letters.groups)
    if waiting:
        yield Trouble(
            what=f"Dead letters that wait: {waiting:,}.",
            way_out="Mend their cause, then bring them back:",
            command=_replay(app),
        )


def commands_of(app: DagApplication, lag: SeenLag | None) -> tuple[CopiedCommand, ...]:
    """Return the commands for what pages do not do themselves."""
    topics = () if lag is None else lag.topics
    inputs = [shlex.quote(each.topic) for each in topics if not each.between]
    between = [shlex.quote(each.topic) for each in topics if each.between]
    flags = start_over_flags(inputs, between) or "--input-topics TOPICS"
    return (
        CopiedCommand(
            name="Replay",
            text="Brings dead letters back to the topics that they came from.",
            command=_replay(app),
        ),
        CopiedCommand(
            name="Reset",
            text="Has the application process its input again, with empty state.",
            command=f"airflow-kstreams reset {_of(app)} {flags} --dry-run",
        ),
        CopiedCommand(
            name="Expand",
            text="Gives the subtopology that keeps state more processors.",
            command=f"airflow-kstreams expand processors {_of(app)} --to NUMBER --dry-run",
        ),
    )


def _replay(app: DagApplication) -> str:
    return f"airflow-kstreams dead-letters replay {_of(app)} --dry-run"


def _of(app: DagApplication) -> str:
    connection, application = shlex.quote(app.kafka_conn_id), shlex.quote(app.application_id)
    return f"--airflow-conn {connection} --application-id {application}"


def _clear(app: DagApplication, run: SeenRun, links: Links) -> Action | None:
    """Return the action that clears a run's DAG run; None where it is not one of this DAG."""
    # A run whose begin has failed has no slice, which would name the DAG.
    dag_id = run.dag_id or ("" if run.generation else app.dag_id)
    if dag_id != app.dag_id or run.state not in _TO_CLEAR:
        return None
    return links.clear(dag_id, run.run_id, only_failed=run.state != "taken back")


def _failed(failure: Failure, *, link: PageLink | None = None, action: Action | None = None) -> Trouble:
    return Trouble(what=failure.in_one_line, way_out=failure.remedy, grave=True, link=link, action=action)


def _odd(suspicions: tuple[Suspicion, ...]) -> Iterator[Trouble]:
    yield from (Trouble(what=f"{odd_text(each)}.") for each in suspicions)
