from __future__ import annotations

import dataclasses
import sys

import pytest

from airflow_kstreams.streams import KStreamBuilder, StoreSpec, WindowStoreSpec, serdes
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.plan import TopologyPlan

pytestmark = pytest.mark.promise("changelog-settings-break-nothing")


def spec(**configs: str) -> StoreSpec:
    return StoreSpec(
        name="totals",
        key_serde=serdes.string(),
        value_serde=serdes.json(),
        changelog_configs={name.replace("_", "."): value for name, value in configs.items()},
    )


def plan_of(store: StoreSpec) -> TopologyPlan:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").group_by_key().count(store=store)
    return builder.build().plan("app")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "delete"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "3600000"),
        ("retention.bytes", "1"),
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.before.max.ms", "3600000"),
        ("message.timestamp.after.max.ms", "3600000"),
    ],
)
def test_setting_is_refused_with_the_users_line_when_it_would_break_the_changelog(
    name: str, value: str
) -> None:
    line = sys._getframe().f_lineno + 2
    with pytest.raises(TopologyError) as caught:
        StoreSpec(
            name="t", key_serde=serdes.bytes(), value_serde=serdes.bytes(), changelog_configs={name: value}
        )
    assert f"{__file__}:{line}: store 't' sets {name}={value}" in caught.value.cause
    assert name in caught.value.fix


def test_setting_is_refused_when_the_store_of_a_window_has_it() -> None:
    with pytest.raises(TopologyError, match=r"store 'w' sets cleanup\.policy=delete"):
        WindowStoreSpec(
            name="w",
            key_serde=serdes.bytes(),
            value_serde=serdes.bytes(),
            changelog_configs={"cleanup.policy": "delete"},
            retention_ms=1,
        )


def test_settings_are_refused_when_the_store_has_no_changelog() -> None:
    with pytest.raises(TopologyError, match="logged=False"):
        StoreSpec(
            name="t",
            key_serde=serdes.bytes(),
            value_serde=serdes.bytes(),
            logged=False,
            changelog_configs={"segment.ms": "60000"},
        )


def test_settings_reach_the_plan_when_they_are_allowed() -> None:
    plan = plan_of(spec(cleanup_policy="compact", retention_ms="-1", segment_ms="60000"))
    assert plan.subtopologies[0].changelog_configs == {
        "app-totals-changelog": {"cleanup.policy": "compact", "retention.ms": "-1", "segment.ms": "60000"}
    }


def test_number_reaches_the_plan_as_text_when_a_setting_is_given_as_one() -> None:
    store = spec(delete_retention_ms=5, retention_ms=-1)  # type: ignore[arg-type]
    assert plan_of(store).subtopologies[0].changelog_configs == {
        "app-totals-changelog": {"delete.retention.ms": "5", "retention.ms": "-1"}
    }


def test_hash_stays_when_the_store_moves_to_disk() -> None:
    moved = dataclasses.replace(spec(), storage="rocksdb")
    assert plan_of(moved).topology_hash == plan_of(spec()).topology_hash, "the changelog is the same"


def test_hash_stays_when_only_settings_of_the_changelog_change() -> None:
    assert plan_of(spec(segment_ms="1")).topology_hash == plan_of(spec()).topology_hash
