"""Checks the dead-letter topic, in a run and in the test driver."""

from __future__ import annotations

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.settings import ApplicationSettings


def has_dead_letters(plan: TopologyPlan, settings: ApplicationSettings) -> bool:
    """Say whether records may go to the dead-letter topic: by an error handler, or after their last call."""
    return settings.dead_letters or plan.gives_up


def refuse_dead_letter_topic(plan: TopologyPlan, settings: ApplicationSettings) -> None:
    """Refuse a dead-letter topic, if records may go there, that the topology reads or that is a changelog.

    :raises ConfigError: the topic is such a one.
    """
    topic = settings.dead_letter_topic
    taken = {*plan.sources, *plan.globals, *plan.changelogs}
    if has_dead_letters(plan, settings) and topic in taken:
        raise ConfigError(
            f"the dead-letter topic {topic!r} is also read by the topology, or is a changelog",
            fix="name another one by errors.dead.letter.queue.topic.name; process dead letters in an "
            "application of their own",
        )
