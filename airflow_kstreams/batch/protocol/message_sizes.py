"""Compares how large records may be in the inputs and in every topic that they, or their results, go to.

Rule: what a topic holds, the topics behind it take. The engine's own topics are created with the largest
``max.message.bytes`` of the topics that the topology reads, plus room for what the engine adds; the writers
of a task take what the topics take (``WriterPort``'s makers); and begin names every topic that takes less
than an input holds. It only names it: results may be small. A record that does not fit fails the task and is
named then, and a dead letter that does not fit loses its value, not its place.

Limits are read when a run begins and again by every attempt of a task, so that a limit that was raised counts
from the next attempt on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from airflow_kstreams.batch.protocol.topic_settings import alter_command
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort
from airflow_kstreams.streams.records.record_sizes import BROKER_MAX_BYTES
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.topology import has_dead_letters

log = logging.getLogger(__name__)

MAX_BYTES = "max.message.bytes"
#: Bytes that a record may gain on its way to a topic of the engine: a larger key, a dead letter's headers.
ROOM_BYTES = 65_536
#: The largest value that the broker takes for the setting.
_LARGEST = 2**31 - 1


def max_message_bytes(admin: AdminPort, topics: Iterable[str]) -> dict[str, int]:
    """Return ``max.message.bytes`` of topics, asked for in one request.

    A topic that does not exist, or whose settings this user may not see, is taken to have the broker's
    default, with a line in the log.
    """
    configs = admin.topic_configs({*topics})
    for topic, error in sorted(configs.refused.items()):
        log.info("%s of %s is taken to be %d: %s", MAX_BYTES, topic, BROKER_MAX_BYTES, error.cause)
    limits = {topic: int(of.get(MAX_BYTES, BROKER_MAX_BYTES)) for topic, of in configs.found.items()}
    return limits | dict.fromkeys(configs.refused, BROKER_MAX_BYTES)


def with_room(limit_bytes: int) -> dict[str, str]:
    """Return the setting of a topic that takes what one with this limit holds, and what the engine adds."""
    return {MAX_BYTES: str(min(limit_bytes + ROOM_BYTES, _LARGEST))}


def largest_read(plan: TopologyPlan, limits: Mapping[str, int]) -> int:
    """Return the largest limit of the topics that others write for the topology, or that it reads again."""
    read = {*plan.sources} - {*plan.repartition_topics}
    return max((limits[topic] for topic in read if topic in limits), default=BROKER_MAX_BYTES)


def small_topics(
    plan: TopologyPlan, settings: ApplicationSettings, limits: Mapping[str, int]
) -> tuple[str, ...]:
    """Return a warning for every topic that takes less than an input holds.

    :param limits: of all topics that exist.
    """
    largest = largest_read(plan, limits)
    source = min(topic for topic in plan.sources if limits.get(topic, largest) == largest)
    roles = {
        **dict.fromkeys(plan.outputs, "output topic"),
        **dict.fromkeys(plan.repartition_topics, "repartition topic"),
        **dict.fromkeys(plan.changelogs, "changelog"),
    }
    if has_dead_letters(plan, settings):
        roles[settings.dead_letter_topic] = "dead-letter topic"
    return tuple(
        f"{roles[topic]} {topic} takes records of at most {limits[topic]:,} bytes ({MAX_BYTES}), its input "
        f"{source} holds up to {largest:,}: {_consequence(roles[topic])}; to raise it, run "
        f"{alter_command(topic, _raised(roles[topic], largest))}"
        for topic in sorted(roles)
        if limits.get(topic, largest) < largest
    )


def _raised(role: str, largest: int) -> dict[str, str]:
    return {MAX_BYTES: str(largest)} if role == "output topic" else with_room(largest)


def _consequence(role: str) -> str:
    if role == "dead-letter topic":
        return "a larger dead letter loses its value"
    return "a larger result fails the run"
