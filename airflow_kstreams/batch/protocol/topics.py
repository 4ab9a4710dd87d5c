"""Creates the topics of the protocol, and refuses topics that are not those a run began with."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from airflow_kstreams.batch.protocol.logs.data_loss import Loss, data_loss, replaced, state_lost
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.topic_settings import PROTOCOL
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import AdminPort, TopicSpec
from airflow_kstreams.streams.settings import ApplicationSettings


def ensure_protocol_topics(admin: AdminPort, settings: ApplicationSettings) -> None:
    """Create the metadata topic and the ledger unless they exist."""
    _ensure_protocol(admin, ProtocolTopics(settings.application_id).protocol, settings)


def ensure_ledger_topic(admin: AdminPort, settings: ApplicationSettings) -> None:
    """Create the ledger unless it exists."""
    _ensure_protocol(admin, (ProtocolTopics(settings.application_id).ledger,), settings)


def ensure_replays_topic(admin: AdminPort, name: str, settings: ApplicationSettings) -> None:
    """Create the topic that says how far dead letters were replayed, unless it exists."""
    _ensure_protocol(admin, (name,), settings)


def _ensure_protocol(admin: AdminPort, wanted: tuple[str, ...], settings: ApplicationSettings) -> None:
    found = admin.describe_topics(wanted)
    for name, description in found.items():
        if description.partitions != 1:
            raise ConfigError(
                f"topic {name} has {description.partitions} partitions, the run protocol needs exactly 1",
                fix="choose another application id, or delete that topic if it is not in use",
            )
    admin.create_topics(
        [topic_spec(name, 1, PROTOCOL, settings) for name in wanted if name not in found],
    )


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
