"""Defines ``airflow-kstreams broker``: starts and stops one Kafka broker on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from airflow_kstreams.cli.shared_options import say

broker = typer.Typer(
    help="Start or stop one Kafka broker on this machine, for trying things out.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_ONLY = "for trying things out only: one broker, no logins, reached from this machine only"


def _state_folder() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home, "airflow-kstreams", "broker")


Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="FOLDER",
        help="Where its data is; by default airflow-kstreams/broker below XDG_STATE_HOME or ~/.local/state.",
    ),
]


@broker.command()
def start(
    port: Annotated[
        int, typer.Option(min=1, max=65_534, help="Port to listen on; the next one is taken, too.")
    ] = 9092,
    folder: Folder = None,
) -> None:
    """Start a broker, and wait until it answers.

    It listens on 127.0.0.1 only and lets everyone in: it is for trying things out. Topics stay in its folder
    until `broker stop --delete`. It needs Java 17. The first start fetches Kafka's jars, 52 MB, from Maven
    Central, and takes none that has another checksum than the one known here; KSTREAMS_MAVEN_REPOSITORY names
    another repository, KSTREAMS_KAFKA_LIBS a folder of jars that is there already.
    """
    from airflow_kstreams.streams.errors import require

    require("spark", "psutil", what="broker")
    from airflow_kstreams.first_steps.broker.kafka_jars import VERSION, is_fetched
    from airflow_kstreams.first_steps.broker.local_broker import LocalBroker

    ours = LocalBroker(port=port, folder=(folder or _state_folder()).absolute())
    if not ours.is_running() and not is_fetched(os.environ):
        say(f"fetching the jars of Kafka {VERSION}, 52 MB, once; about a minute")
    news = "started" if ours.start() else "was running already"
    say(f"broker {news} at {ours.bootstrap}, data in {ours.folder}")
    say(_ONLY)


@broker.command()
def stop(
    folder: Folder = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete all its topics, too.")] = False,
) -> None:
    """Stop the broker of a folder, and wait for its end."""
    from airflow_kstreams.streams.errors import require

    require("spark", "psutil", what="broker")
    from airflow_kstreams.first_steps.broker.local_broker import LocalBroker

    ours = LocalBroker(port=0, folder=(folder or _state_folder()).absolute())
    say("broker stopped" if ours.stop() else f"no broker was running in {ours.folder}")
    if delete:
        say(f"deleted {ours.folder}" if ours.wipe() else "there was nothing to delete")
