from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pytest

from airflow_kstreams.batch.ledger.facts import NOTHING_RECORDED, Assignment, GroupedPartitions
from airflow_kstreams.batch.protocol.topics import ensure_protocol_topics
from airflow_kstreams.batch.run.source_topics import check_topics, ensure_topics
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import ConfigError, TopologyError
from airflow_kstreams.streams.partitioning.partition_groups import Groups
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.ports import TopicConfigs, TopicDescription, TopicPartition, TopicSpec
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application

SETTINGS = ApplicationSettings.parse("app")


class Topics:
    """The part of AdminPort that concerns topics, in memory."""

    def __init__(self, **partitions: int) -> None:
        self.partitions = {name.replace("_", "-"): count for name, count in partitions.items()}
        self.created: dict[str, TopicSpec] = {}

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription]:
        return {
            name: TopicDescription(name=name, topic_id=f"id-{name}", partitions=self.partitions[name])
            for name in names
            if name in self.partitions
        }

    def topic_configs(self, names: Collection[str]) -> TopicConfigs:
        return TopicConfigs({name: {} for name in names}, {})

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        assert not any(before.values())

    def create_topics(self, topics: Collection[TopicSpec]) -> None:
        for topic in topics:
            self.created[topic.name] = topic
            self.partitions.setdefault(topic.name, topic.partitions)


def plan(*subtopologies: SubtopologyPlan, grouper: str = "", **repartition: int | None) -> TopologyPlan:
    return TopologyPlan(
        partition_grouper=grouper,
        application_id="app",
        topology_hash="h",
        subtopologies=subtopologies,
        repartition_topics={name.replace("_", "-"): count for name, count in repartition.items()},
    )


def ensure(topics: Any, topology: TopologyPlan, **extra: Any) -> Any:
    checked = check_topics(topics, topology, SETTINGS, **extra)
    recorded = extra.get("recorded", NOTHING_RECORDED)
    return ensure_topics(topics, topology, SETTINGS, checked, recorded=recorded)


REKEY = SubtopologyPlan(id=0, sources=("flights",), sinks=("app-r",))
COUNT = SubtopologyPlan(
    id=1, sources=("app-r",), sinks=("out",), stores=("c",), changelogs={"c": "app-c-changelog"}
)


def test_internal_topics_are_created_like_the_largest_source_when_no_count_is_given() -> None:
    topics = Topics(flights=4, out=1)
    found = ensure(topics, plan(REKEY, COUNT, app_r=None))
    assert found.partitions == {"flights": 4, "app-r": 4}
    assert found.topic_ids == {"flights": "id-flights", "app-r": "id-app-r"}
    assert found.tasks == {0: 4, 1: 4}
    repartition, changelog = topics.created["app-r"], topics.created["app-c-changelog"]
    assert (repartition.partitions, changelog.partitions) == (4, 4)
    assert repartition.configs["retention.ms"] == repartition.configs["retention.bytes"] == "-1"
    assert changelog.configs["cleanup.policy"] == "compact"
    for spec in (repartition, changelog):
        assert spec.configs["message.timestamp.before.max.ms"] == "9223372036854775807"
        assert spec.configs["message.timestamp.after.max.ms"] == "9223372036854775807"


def test_fixed_count_is_used_when_the_topology_gives_one() -> None:
    found = ensure(Topics(flights=4, out=1), plan(REKEY, COUNT, app_r=2))
    assert found.tasks == {0: 4, 1: 2}


def test_existing_repartition_topic_keeps_its_count_when_the_input_grew() -> None:
    topics = Topics(flights=6, out=1, app_r=4, app_c_changelog=4)
    assert ensure(topics, plan(REKEY, COUNT, app_r=None)).tasks == {0: 6, 1: 4}
    assert topics.created == {}


def test_every_missing_topic_is_named_with_its_command_when_user_topics_are_absent() -> None:
    with pytest.raises(
        TopologyError, match=r"input topic 'flights'.*output topic 'out'|output.*input"
    ) as caught:
        ensure(Topics(), plan(REKEY, COUNT, app_r=None))
    assert "airflow-kstreams topics create flights out " in caught.value.fix


def test_nothing_is_created_when_a_user_topic_is_missing() -> None:
    topics = Topics(flights=4)
    with pytest.raises(TopologyError, match="'out'"):
        ensure(topics, plan(REKEY, COUNT, app_r=None))
    assert topics.created == {}


def test_both_counts_are_named_when_copartitioned_topics_differ() -> None:
    join = SubtopologyPlan(id=0, sources=("a", "b"), sinks=("out",), copartitioned=(("a", "b"),))
    with pytest.raises(TopologyError, match="'a' has 4 and 'b' has 3"):
        ensure(Topics(a=4, b=3, out=1), plan(join))
    assert ensure(Topics(a=4, b=4, out=1), plan(join)).tasks == {0: 4}


def test_new_repartition_topic_follows_its_partner_when_it_is_joined() -> None:
    join = SubtopologyPlan(id=1, sources=("app-r", "b"), sinks=("out",), copartitioned=(("app-r", "b"),))
    found = ensure(Topics(flights=4, b=3, out=1), plan(REKEY, join, app_r=None))
    assert found.partitions["app-r"] == 3


def test_topology_is_refused_when_a_changelog_was_made_for_another_number_of_tasks() -> None:
    with pytest.raises(TopologyError, match=r"app-c-changelog has 3 partitions.*4 tasks"):
        ensure(Topics(flights=4, out=1, app_c_changelog=3), plan(REKEY, COUNT, app_r=None))


def test_topology_is_refused_when_a_repartition_topic_has_another_fixed_count() -> None:
    with pytest.raises(TopologyError, match="app-r has 3 partitions, the topology asks for 2"):
        ensure(Topics(flights=4, out=1, app_r=3), plan(REKEY, COUNT, app_r=2))


def test_protocol_topics_are_compacted_and_single_when_created() -> None:
    topics: Any = Topics()
    ensure_protocol_topics(topics, SETTINGS)
    assert {n: (s.partitions, s.configs["cleanup.policy"]) for n, s in topics.created.items()} == {
        "app-metadata": (1, "compact"),
        "app-runs": (1, "compact"),
    }


def test_application_id_is_refused_when_its_metadata_topic_has_many_partitions() -> None:
    topics: Any = Topics(app_metadata=3)
    with pytest.raises(ConfigError, match="app-metadata has 3 partitions"):
        ensure_protocol_topics(topics, SETTINGS)


PAIRS: Groups = ({"flights": (0, 1)}, {"flights": (2, 3)})
COUNT_DIRECTLY = SubtopologyPlan(
    id=0, sources=("flights",), sinks=("out",), stores=("c",), changelogs={"c": "app-c-changelog"}
)


def test_changelog_has_a_partition_per_group_when_a_grouper_makes_fewer() -> None:
    topics, asked = Topics(flights=4, out=1), []

    def pairs(counts: Any) -> Any:
        asked.append(dict(counts))
        return {0: PAIRS}

    found = ensure(topics, plan(COUNT_DIRECTLY, grouper="pairs"), groups=pairs)
    assert asked == [{"flights": 4}]
    assert found.tasks == {0: 2}
    assert topics.created["app-c-changelog"].partitions == 2
    assert found.grouped[0].groups == PAIRS
    assert found.grouped[0].changelogs == {"app-c-changelog": "id-app-c-changelog"}


def test_nothing_is_created_when_state_would_be_left_behind() -> None:
    topics = Topics(flights=4, out=1, app_c_changelog=2)
    other = SubtopologyPlan(id=1, sources=("flights",), sinks=("app-r",))
    recorded = Assignment(
        version=1,
        run_id="run-1",
        subtopologies={
            "0": GroupedPartitions(
                partitions={"flights": 4},
                groups=PAIRS,
                changelogs={"app-c-changelog": "id-app-c-changelog"},
            )
        },
    )
    with pytest.raises(TopologyError, match="flights-0"):
        ensure(
            topics,
            plan(COUNT_DIRECTLY, other, grouper="pairs", app_r=None),
            groups=lambda _: {0: PAIRS[::-1], 1: PAIRS},
            recorded=recorded,
        )
    assert topics.created == {}


def test_users_settings_win_over_the_engines_when_a_changelog_is_created() -> None:
    topics = Topics(flights=1, out=1)
    mine = {"delete.retention.ms": "1000", "segment.ms": "60000"}
    counted = msgspec.structs.replace(COUNT, changelog_configs={"app-c-changelog": mine})
    ensure(topics, plan(REKEY, counted, app_r=None))
    configs = topics.created["app-c-changelog"].configs
    assert configs["cleanup.policy"] == "compact"
    assert (configs["delete.retention.ms"], configs["segment.ms"]) == ("1000", "60000")


def test_tombstones_are_kept_a_week_when_the_user_says_nothing() -> None:
    topics = Topics(flights=1, out=1)
    ensure(topics, plan(REKEY, COUNT, app_r=None))
    assert topics.created["app-c-changelog"].configs["delete.retention.ms"] == "604800000"


@pytest.mark.remedy("source_topics._refuse_alike")
def test_stores_whose_topics_kafka_takes_for_one_are_refused_until_one_has_another_name() -> None:
    def counting(*stores: str) -> Application:
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        for store in stores:
            builder.stream("in").group_by_key().count(store=store).to_stream().send_to(
                "out", value_serde=serdes.int64()
            )
        return Application(application_id="app", topology=builder.build(), on=kafka, clock=kafka.clock)

    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    kafka.append("in", b"v", b"k")
    with pytest.raises(TopologyError) as caught:
        counting("by.day", "by_day").begin("run-1")
    assert "needs topics app-by.day-changelog and app-by_day-changelog" in caught.value.cause
    assert "give one of the stores, or operators, that they are named after" in caught.value.fix
    counting("by.day", "by-day").run("run-1")
    assert len(kafka.values("out")) == 2
