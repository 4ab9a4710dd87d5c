"""``airflow-kstreams replay``: brings the records of a dead-letter topic back to where they came from."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_kstreams.cli.broker import cluster
from airflow_kstreams.cli.options import ApplicationId, BootstrapServer, ConfigFile, DryRun
from airflow_kstreams.cli.output import show

if TYPE_CHECKING:
    from airflow_kstreams.batch.protocol.replay_records import Replay
    from airflow_kstreams.explore.tables import Table


def replay(
    application_id: ApplicationId,
    bootstrap_server: BootstrapServer = None,
    config_file: ConfigFile = None,
    dead_letter_topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="What errors.dead.letter.queue.topic.name says, if anything."),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Bring dead letters back to the topics they came from, each once, so that the next run processes them.

    Replays what no replay before has replayed, up to the topic's end. May be interrupted and run again.
    """
    from airflow_kstreams.batch.replay.replay import DeadLetterReplay
    from airflow_kstreams.streams.settings import ApplicationSettings

    named = {"errors.dead.letter.queue.topic.name": dead_letter_topic} if dead_letter_topic else {}
    settings = ApplicationSettings.parse(application_id, named)
    replay_id = f"manual__{datetime.now(tz=UTC).isoformat(timespec='milliseconds')}"
    tool = DeadLetterReplay(cluster(bootstrap_server, config_file), settings, replay_id=replay_id)
    found = tool.plan() if dry_run else tool.run()
    show([_table(found)] if found.records else [], notes=_notes(found, dry_run=dry_run))


def _table(found: Replay) -> Table:
    from airflow_kstreams.explore.tables import Table

    return Table(
        title=f"Dead letters of {found.dead_letter_topic}",
        columns=("topic they came from", "records"),
        rows=[(topic, str(count)) for topic, count in found.records_per_topic.items()],
        numbers=1,
    )


def _notes(found: Replay, *, dry_run: bool) -> Iterator[str]:
    if not found.records:
        yield f"There is nothing to bring back from {found.dead_letter_topic}."
    if found.without_origin:
        yield f"Left alone: {found.without_origin} letters that belong to no consumed record, as of timers."
    if found.left_out:
        yield (
            f"Left alone: {found.left_out} letters without their records, which did not fit; their header "
            "__streams.errors.left.out says so, and .topic, .partition and .offset where the record is."
        )
    if found.expired:
        yield f"Deleted before they were replayed: what lay at {found.expired} offsets."
    yield "Dry run: nothing was changed." if dry_run else "Done."
