"""Defines the topics of the engine: creates them, and refuses settings that would lose records or their
times, and topics that are not those a run began with.

The topics are created with these settings, and checked again before every run: an administrator may change a
topic, or create it before the first run with the broker's defaults, such as ``log.message.timestamp.type``.
An error names the command that mends it. Every other setting is the administrator's.

Rule of sizes: a topic takes every record that the topics before it can hold. The engine's own topics are
created with the largest ``max.message.bytes`` of the topics that the topology reads, plus room for the
engine's additions; the writers of a task take records as large as the topics do (``WriterPort``'s makers);
and begin names every topic that takes less than an input holds. It only names it: results may be small. A
record that does not fit fails the task and is named then, and a dead letter that does not fit loses its
value, not its place.

Limits are read when a run begins and again by every attempt of a task, so that a limit that was raised counts
from the next attempt on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from airflow_kstreams.batch.protocol.logs.data_loss import Loss, data_loss, replaced, state_lost
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.streams.errors import AccessDeniedError, ConfigError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.commands import set_topic_command
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, Record, TopicConfigs, TopicLimits, TopicSpec
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.records.topic_limits import BROKER_LIMITS, BROKER_MAX_BYTES
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.topology import has_dead_letters

log = package_log(__name__)
#: Records may be dated long ago or ahead: neither must they be refused, nor expired by their own time, nor
#: get the broker's time in the place of their own.
_ANY_TIMESTAMP: Mapping[str, str] = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
#: Settings of repartition topics and the dead-letter topic.
REPARTITION: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    **_ANY_TIMESTAMP,
}
#: A local checkpoint counts for half the time that tombstones are kept: with seven days, the checkpoint of a
#: daily run is of use, with the broker's one day it would not be.
_CHANGELOG: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(7 * 24 * 3600 * 1000),
    **_ANY_TIMESTAMP,
}
#: Settings of the metadata topic and the ledger: small segments, cleaned early, because every task reads
#: these topics from their beginning. Their records' times mean nothing, so a clock that is hours ahead ends
#: no run.
PROTOCOL: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(16 * 1024 * 1024),
    **_ANY_TIMESTAMP,
}
#: Setting -> the loss that another value causes.
_LOSSES: Mapping[str, str] = {
    "cleanup.policy": "the broker would delete records that are still needed",
    "retention.ms": "the broker would delete records that are still needed",
    "retention.bytes": "the broker would delete records that are still needed",
    "message.timestamp.type": "records would get the broker's time, and event time would be lost",
}
MAX_BYTES = "max.message.bytes"
#: Bytes that a record may gain on its way to a topic of the engine: a larger key, a dead letter's headers.
ROOM_BYTES = 65_536
#: The largest value that the broker takes for the setting.
_LARGEST = 2**31 - 1
_LARGEST_MS = 2**63 - 1
#: Sides of the broker's time on which a topic refuses records: ``message.timestamp.<side>.max.ms``.
_SIDES = ("before", "after")
#: Their one name before Kafka 3.6.
_BOTH_SIDES = "message.timestamp.difference.max.ms"
_TIMESTAMP_TYPE, _BROKERS = "message.timestamp.type", "LogAppendTime"


def ensure_protocol_topics(admin: AdminPort, settings: ApplicationSettings) -> None:
    """Create the metadata topic and the ledger unless they exist."""
    _ensure_protocol(admin, ProtocolTopics(settings.application_id).protocol, settings)


def ensure_ledger_topic(admin: AdminPort, settings: ApplicationSettings) -> None:
    """Create the ledger unless it exists."""
    _ensure_protocol(admin, (ProtocolTopics(settings.application_id).ledger,), settings)


def ensure_replays_topic(admin: AdminPort, name: str, settings: ApplicationSettings) -> None:
    """Create the topic of the records of replays, unless it exists."""
    _ensure_protocol(admin, (name,), settings)


def _ensure_protocol(admin: AdminPort, wanted: tuple[str, ...], settings: ApplicationSettings) -> None:
    found = admin.describe_topics(wanted)
    for name, description in found.items():
        if description.partitions != 1:
            raise ConfigError(
                f"topic {name} has {counted(description.partitions, 'partition')}, the run protocol needs "
                "exactly 1",
                fix="choose another application id, or delete that topic if it is not in use",
            )
    admin.create_topics(
        [topic_spec(name, 1, PROTOCOL, settings) for name in wanted if name not in found],
    )


def others_topic(stranger: Record, *, wanted_by: str, fix: str) -> ConfigError:
    """Build the error for a topic that has the name of one of the protocol's and is somebody else's.

    :param stranger: a record in it that the engine has not written.
    :param wanted_by: the part of the sentence that names who needs a topic of that name, e.g. ``application
        'orders'``.
    """
    place = f"{stranger.topic()}-{stranger.partition()}@{stranger.offset()}"
    return ConfigError(
        f"topic {stranger.topic()} holds records of another program, {place} is the first: {wanted_by} needs "
        "a topic of that name for itself, and leaves this one as it is",
        fix=fix,
    )


def others_protocol_topic(stranger: Record, application_id: str) -> ConfigError:
    """Build the error of :func:`others_topic` for the metadata topic or the ledger of an application."""
    return others_topic(
        stranger,
        wanted_by=f"application {application_id!r}",
        fix=f"choose another application id, such as {application_id}-streams",
    )


def topic_spec(
    name: str, partitions: int, configs: Mapping[str, str], settings: ApplicationSettings
) -> TopicSpec:
    """Return a topic of the engine's own, to be created."""
    return TopicSpec(
        name=name,
        partitions=partitions,
        replication_factor=settings.internal_replication_factor,
        configs=configs,
    )


def changelog_settings(plan: TopologyPlan, changelog: str) -> Mapping[str, str]:
    """Return the settings of a changelog, those that its store asks for included."""
    given = plan.subtopology(plan.changelogs[changelog]).changelog_configs.get(changelog, {})
    return {**_CHANGELOG, **given}


def internal_settings(plan: TopologyPlan) -> dict[str, Mapping[str, str]]:
    """Return the settings that the engine creates its own topics of a topology with, by topic."""
    wanted: dict[str, Mapping[str, str]] = dict.fromkeys(plan.repartition_topics, REPARTITION)
    wanted |= {changelog: changelog_settings(plan, changelog) for changelog in plan.changelogs}
    return wanted | dict.fromkeys(ProtocolTopics(plan.application_id).protocol, PROTOCOL)


def refuse_other_topics(admin: AdminPort, slice_: Slice, topics: Collection[str]) -> None:
    """Compare the ids of a slice's source topics and changelogs with the ones its run began with.

    :param topics: the topics to compare.
    :raises DataLossError: a topic is gone or was created again.
    """
    plan = slice_.plan
    before = {topic: id_ for topic, id_ in (plan.changelog_ids | plan.topic_ids).items() if topic in topics}
    if not before:
        return
    found = admin.describe_topics(before)
    run = (plan.topology.application_id, slice_.run_id)
    losses: list[Loss] = []
    for topic, id_ in sorted(before.items()):
        now = found[topic].topic_id if topic in found else ""
        if now == id_:
            continue
        if topic in plan.topic_ids:
            partitions = found[topic].partitions if topic in found else plan.partitions[topic]
            losses.append(replaced(topic, now=now, before=id_, partitions=partitions, run=run))
        else:
            text = f"changelog {topic} is not the one run {run[1]!r} began with: its id is {now or 'gone'}, "
            losses.append(state_lost(plan.topology, topic, f"{text}expected {id_}", drop_slice=True))
    if losses:
        raise data_loss(losses, plan.topology.application_id, run_id=slice_.run_id)


def harmful(wanted: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with which a topic would lose records or times, each with the value that it must
    have.

    :param wanted: setting -> the value with which the engine creates the topic.
    :param found: setting -> the value in force; a setting that is not among them is taken to be right.
    """
    return {
        name: value for name, value in wanted.items() if name in _LOSSES and found.get(name, value) != value
    }


def refuse_harmful_settings(
    admin: AdminPort, plan: TopologyPlan, configs: TopicConfigs | None = None
) -> None:
    """Refuse to run on internal topics whose settings would lose records or their times.

    A topic that does not exist is not looked at. Settings that this user may not see are not either, with a
    line in the log.

    :param configs: settings of the topics that exist, of others, too, if they are known; asked for unless
        given.
    :raises ConfigError: a topic has such a setting; the text gives the commands that mend it.
    """
    causes: list[str] = []
    commands: list[str] = []
    internal = internal_settings(plan)
    if configs is None:
        configs = admin.topic_configs(admin.describe_topics(internal))
    for refused in (error for topic, error in configs.refused.items() if topic in internal):
        if isinstance(refused, AccessDeniedError):
            log.warning("the settings of internal topics are not checked: %s", refused)
            return
        raise refused
    for topic, found in sorted(configs.found.items()):
        mended = harmful(internal.get(topic, {}), found)
        causes += [
            f"{topic} has {name}={found[name]}, it must be {value}: {_LOSSES[name]}"
            for name, value in mended.items()
        ]
        if mended:
            commands.append(set_topic_command(topic, mended))
    if causes:
        raise ConfigError("; ".join(causes), fix=f"run {'; '.join(commands)}; then retry the run")


def topic_limits(admin: AdminPort, topics: Iterable[str]) -> dict[str, TopicLimits]:
    """Return the limits of topics, asked for in one request; as :func:`limits_of`."""
    return limits_of(admin.topic_configs({*topics}))


def limits_of(configs: TopicConfigs) -> dict[str, TopicLimits]:
    """Return the limits of topics.

    A topic that does not exist, or whose settings this user may not see, is taken to have the broker's
    defaults, with a line in the log.
    """
    for topic, error in sorted(configs.refused.items()):
        log.info(
            "%s of %s is taken to be %d, %s %d: %s",
            *(MAX_BYTES, topic, BROKER_MAX_BYTES, _timestamp_max("after"), BROKER_LIMITS.after_ms),
            error.cause,
        )
    limits = {topic: _limits(of) for topic, of in configs.found.items()}
    return limits | dict.fromkeys(configs.refused, BROKER_LIMITS)


def _limits(configs: Mapping[str, str]) -> TopicLimits:
    max_bytes = int(configs.get(MAX_BYTES, BROKER_MAX_BYTES))
    if redates(configs):
        return TopicLimits(max_bytes)
    both = configs.get(_BOTH_SIDES, _LARGEST_MS)
    before_ms, after_ms = (int(configs.get(_timestamp_max(side), both)) for side in _SIDES)
    return TopicLimits(max_bytes, before_ms, after_ms)


def _timestamp_max(side: str) -> str:
    """Return the setting for how far before or after the broker's time records may be dated."""
    return f"message.timestamp.{side}.max.ms"


def with_room(limit_bytes: int) -> dict[str, str]:
    """Return the setting of a topic that takes every record of a topic with this limit, and the engine's
    additions.
    """
    return {MAX_BYTES: str(min(limit_bytes + ROOM_BYTES, _LARGEST))}


def largest_read(plan: TopologyPlan, limits: Mapping[str, TopicLimits]) -> int:
    """Return the largest limit of the topics that others write for the topology, or that it reads again."""
    read = {*plan.sources} - {*plan.repartition_topics}
    return max((limits[topic].max_bytes for topic in read if topic in limits), default=BROKER_MAX_BYTES)


def small_topics(
    plan: TopologyPlan, settings: ApplicationSettings, limits: Mapping[str, TopicLimits]
) -> tuple[str, ...]:
    """Return a warning for every topic that takes less than an input holds.

    :param limits: topic -> its limits, for all topics that exist.
    """
    largest = largest_read(plan, limits)
    taken = {topic: of.max_bytes for topic, of in limits.items()}
    source = min(topic for topic in plan.sources if taken.get(topic, largest) == largest)
    roles = {
        **dict.fromkeys(plan.outputs, "output topic"),
        **dict.fromkeys(plan.repartition_topics, "repartition topic"),
        **dict.fromkeys(plan.changelogs, "changelog"),
    }
    if has_dead_letters(plan, settings):
        roles[settings.dead_letter_topic] = "dead-letter topic"
    return tuple(
        f"{roles[topic]} {topic} takes records of at most {counted(taken[topic], 'byte')} ({MAX_BYTES}), "
        f"its input {source} holds up to {largest:,}: {_consequence(roles[topic])}; to raise it, run "
        f"{set_topic_command(topic, _raised(roles[topic], largest))}"
        for topic in sorted(roles)
        if taken.get(topic, largest) < largest
    )


def narrow_times(plan: TopologyPlan, settings: ApplicationSettings, configs: TopicConfigs) -> tuple[str, ...]:
    """Return a warning for every topic of the user's that refuses times which records of an input may have.

    Times that an extractor or a function gives are not known here: a record that the topic refuses for its
    time is named when it is sent.

    :param configs: settings of all topics that exist.
    """
    found = configs.found
    inputs = [_held(found[topic]) for topic in {*plan.sources} - {*plan.repartition_topics} if topic in found]
    if not inputs:
        return ()
    widest = [max(sides) for sides in zip(*inputs, strict=True)]
    roles = {**dict.fromkeys(plan.outputs, "output"), **dict.fromkeys(plan.intermediates, "intermediate")}
    if has_dead_letters(plan, settings):
        roles[settings.dead_letter_topic] = "dead-letter"
    warnings = []
    for topic in sorted(roles.keys() & found.keys() - {*plan.repartition_topics}):
        limits = _limits(found[topic])
        for side, allowed_ms, held_ms in zip(_SIDES, limits[1:], widest, strict=True):
            name = _timestamp_max(side)
            if allowed_ms < held_ms:
                warnings.append(
                    f"{roles[topic]} topic {topic} refuses records dated more than {allowed_ms:,} ms {side} "
                    f"the broker's time ({name}), its input takes up to {held_ms:,}: what is sent there with "
                    "a time between them fails the run; to widen it, run "
                    f"{set_topic_command(topic, {name: str(held_ms)})}"
                )
    return tuple(warnings)


def redating_topics(plan: TopologyPlan, configs: TopicConfigs) -> tuple[str, ...]:
    """Return a warning for every topic of the user's between subtopologies that gives records another time,
    which what reads it goes by.

    :param configs: settings of all topics that exist.
    """
    extracted = {topic for sub in plan.subtopologies for topic in sub.stream_time.extracted}
    return tuple(
        f"intermediate topic {topic} gives its records the broker's time ({_TIMESTAMP_TYPE}={_BROKERS}): "
        "windows and joins of what is read from it go by the time of the run, not by that of the events; to "
        f"keep theirs, run {set_topic_command(topic, {_TIMESTAMP_TYPE: 'CreateTime'})}"
        for topic in sorted({*plan.intermediates} - {*plan.repartition_topics} - extracted)
        if redates(configs.found.get(topic, {}))
    )


def redates(configs: Mapping[str, str]) -> bool:
    """Return whether a topic with these settings gives its records the broker's time."""
    return configs.get(_TIMESTAMP_TYPE) == _BROKERS


def _held(configs: Mapping[str, str]) -> tuple[int, ...]:
    """Return how many milliseconds before and after the broker's time records of an input may be dated."""
    return (0, 0) if redates(configs) else _limits(configs)[1:]


def _raised(role: str, largest: int) -> dict[str, str]:
    return {MAX_BYTES: str(largest)} if role == "output topic" else with_room(largest)


def _consequence(role: str) -> str:
    if role == "dead-letter topic":
        return "a larger dead letter loses its value"
    return "a larger result fails the run"
