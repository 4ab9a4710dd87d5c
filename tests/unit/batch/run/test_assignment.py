from __future__ import annotations

import logging

import msgspec
import pytest

from airflow_kstreams.batch.growing.grown_groups import bound_groups, known_growth
from airflow_kstreams.batch.ledger.facts import NOTHING_RECORDED, Assignment, GroupedPartitions
from airflow_kstreams.batch.run.assignment import (
    group_sources,
    next_assignment,
    refuse_regrouping,
    with_changelogs,
)
from airflow_kstreams.streams.errors import ConfigError, TopologyError
from airflow_kstreams.streams.partitioning.partition_groups import Groups
from airflow_kstreams.streams.partitioning.topic_growth import GrownTopic
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.ports import TopicDescription

Group = dict[str, tuple[int, ...]]
EVEN: Group = {"in": (0, 2)}
ODD: Group = {"in": (1, 3)}


def stateful(sub: int = 0, *, store: str = "s", sources: tuple[str, ...] = ("in",)) -> SubtopologyPlan:
    return SubtopologyPlan(
        id=sub, sources=sources, sinks=("out",), stores=(store,), changelogs={store: f"app-{store}-changelog"}
    )


def stateless(sub: int = 0) -> SubtopologyPlan:
    return SubtopologyPlan(id=sub, sources=("in",), sinks=("out",))


def plan_of(*subs: SubtopologyPlan, grouper: str = "own") -> TopologyPlan:
    return TopologyPlan(
        application_id="app", topology_hash="h", subtopologies=subs, partition_grouper=grouper
    )


def begin(
    recorded: Assignment,
    plan: TopologyPlan,
    counts: dict[str, int],
    *groups: Groups,
    run_id: str = "run-1",
    created: str = "first",
    keys_may_move: bool = False,
) -> Assignment:
    """What begin does: group, check, record. ``created`` is when the changelogs were."""
    asked = {sub.id: made for sub, made in zip(plan.subtopologies, groups, strict=False)}
    found = {
        topic: TopicDescription(name=topic, topic_id=f"{topic} {created}", partitions=1)
        for topic in plan.changelogs
    }
    bound = bound_groups(recorded, plan, found)
    known = known_growth(recorded, bound, {}, plan, found)
    grouped = group_sources(plan, counts, lambda _: asked, known=known, bound=bound)
    grouped = with_changelogs(plan, grouped, found)
    refuse_regrouping(recorded, plan, grouped, keys_may_move=keys_may_move)
    return next_assignment(recorded, grouped, run_id=run_id)


def by_parity(count: int) -> Groups:
    return tuple({"in": tuple(n for n in range(count) if n % 2 == group)} for group in range(2))


def test_groups_are_recorded_with_a_version_when_a_first_run_begins() -> None:
    found = begin(NOTHING_RECORDED, plan_of(stateful()), {"in": 4}, (EVEN, ODD))
    assert found == Assignment(
        version=1,
        run_id="run-1",
        subtopologies={
            "0": GroupedPartitions(
                partitions={"in": 4},
                groups=(EVEN, ODD),
                changelogs={"app-s-changelog": "app-s-changelog first"},
            )
        },
    )
    assert msgspec.json.decode(msgspec.json.encode(found), type=Assignment) == found


def test_record_stays_small_when_equal_ids_are_together() -> None:
    default = begin(NOTHING_RECORDED, plan_of(stateful(), grouper=""), {"in": 1_000})
    assert default.subtopologies["0"].groups == ()
    assert default.subtopologies["0"].by_group[999] == {"in": (999,)}
    assert len(msgspec.json.encode(default)) < 200
    own = begin(NOTHING_RECORDED, plan_of(stateful()), {"in": 2}, ({"in": (0,)}, {"in": (1,)}))
    assert own.subtopologies["0"].groups == ()


def test_nothing_is_recorded_again_when_nothing_changed() -> None:
    first = begin(NOTHING_RECORDED, plan_of(stateful()), {"in": 4}, (EVEN, ODD))
    assert begin(first, plan_of(stateful()), {"in": 4}, (EVEN, ODD), run_id="run-2") is first


def test_new_version_is_recorded_when_new_partitions_joined_existing_groups() -> None:
    first = begin(NOTHING_RECORDED, plan_of(stateful()), {"in": 4}, by_parity(4))
    second = begin(first, plan_of(stateful()), {"in": 6}, by_parity(6), run_id="run-2")
    assert second is not first
    assert (second.version, second.run_id) == (2, "run-2")
    assert second.subtopologies["0"].by_group == by_parity(6)


def test_moved_partitions_are_named_when_existing_ones_change_their_group() -> None:
    first = begin(NOTHING_RECORDED, plan_of(stateful()), {"in": 4}, (EVEN, ODD))
    with pytest.raises(
        TopologyError, match=r"2 of its partitions .*: in-0, in-3 \(in-0 from group 0 to group 1\)"
    ) as caught:
        begin(first, plan_of(stateful()), {"in": 4}, ({"in": (2, 3)}, {"in": (0, 1)}))
    assert "as run 'run-1' did" in caught.value.fix


def test_groups_are_refused_when_only_their_order_changed() -> None:
    first = begin(NOTHING_RECORDED, plan_of(stateful()), {"in": 4}, (EVEN, ODD))
    with pytest.raises(TopologyError, match="in-0, in-1, in-2, in-3"):
        begin(first, plan_of(stateful()), {"in": 4}, (ODD, EVEN))


def test_new_partition_is_named_when_it_would_open_a_group() -> None:
    first = begin(NOTHING_RECORDED, plan_of(stateful()), {"in": 4}, (EVEN, ODD))
    with pytest.raises(
        TopologyError, match=r"state in 2 partition groups, but in-4 would make it 3"
    ) as caught:
        begin(first, plan_of(stateful()), {"in": 5}, (EVEN, ODD, {"in": (4,)}))
    assert "2 existing groups" in caught.value.fix


def test_partitions_join_the_group_of_their_ancestors_when_a_stateful_topic_grew_under_the_default() -> None:
    first = begin(NOTHING_RECORDED, plan_of(stateful(), grouper=""), {"in": 2})
    second = begin(first, plan_of(stateful(), grouper=""), {"in": 5}).subtopologies["0"]
    assert second.by_group == ({"in": (0, 2, 4)}, {"in": (1, 3)})
    assert second.grown == {"in": GrownTopic((2, 5), ("linear",))}
    assert begin(first, plan_of(stateful()), {"in": 4}, by_parity(4)).version == 2


def test_groups_are_free_when_no_state_depends_on_them() -> None:
    first = begin(NOTHING_RECORDED, plan_of(stateless()), {"in": 4}, (EVEN, ODD))
    assert begin(first, plan_of(stateless(), grouper=""), {"in": 6}).version == 2


def test_groups_are_free_when_the_changelog_was_created_again() -> None:
    first = begin(NOTHING_RECORDED, plan_of(stateful()), {"in": 4}, (EVEN, ODD))
    second = begin(first, plan_of(stateful(), grouper=""), {"in": 4}, created="after a reset")
    assert second is not first
    assert second.subtopologies["0"].changelogs == {"app-s-changelog": "app-s-changelog after a reset"}
    assert second.former == ()


def test_state_is_found_by_its_changelog_when_subtopologies_are_numbered_anew() -> None:
    first = begin(NOTHING_RECORDED, plan_of(stateful(0)), {"in": 4}, (EVEN, ODD))
    renumbered = plan_of(stateless(0), stateful(1))
    assert begin(first, renumbered, {"in": 4}, (ODD, EVEN), (EVEN, ODD)).version == 2
    with pytest.raises(TopologyError, match="subtopology 1 of"):
        begin(first, renumbered, {"in": 4}, (EVEN, ODD), (ODD, EVEN))


def test_groups_of_a_dropped_store_are_kept_when_the_store_comes_back() -> None:
    first = begin(
        NOTHING_RECORDED, plan_of(stateful(), stateful(1, store="t")), {"in": 4}, (EVEN, ODD), (ODD, EVEN)
    )
    without = begin(first, plan_of(stateful()), {"in": 4}, (EVEN, ODD))
    assert [sorted(entry.changelogs) for entry in without.former] == [["app-t-changelog"]]
    assert begin(without, plan_of(stateful()), {"in": 4}, (EVEN, ODD)) is without
    with pytest.raises(TopologyError, match="subtopology 1 of"):
        begin(without, plan_of(stateful(), stateful(1, store="t")), {"in": 4}, (EVEN, ODD), (EVEN, ODD))
    again = begin(without, plan_of(stateful(), stateful(1, store="t")), {"in": 4}, (EVEN, ODD), (ODD, EVEN))
    assert again.former == ()
    assert again.subtopologies == first.subtopologies


def test_vanished_topics_bind_nobody_when_sources_changed() -> None:
    first = begin(
        NOTHING_RECORDED,
        plan_of(stateful(sources=("in", "old"))),
        {"in": 2, "old": 2},
        (
            {"in": (0, 1), "old": (0,)},
            {"old": (1,)},
        ),
    )
    now: Groups = ({"in": (0, 1)}, {"new": (0, 1)})
    assert begin(first, plan_of(stateful(sources=("in", "new"))), {"in": 2, "new": 2}, now).version == 2
    with pytest.raises(TopologyError, match="state in 2 partition groups"):
        begin(first, plan_of(stateful()), {"in": 2}, ({"in": (0, 1)},))


def test_growth_is_refused_when_keys_leave_their_state_behind() -> None:
    first = begin(NOTHING_RECORDED, plan_of(stateful()), {"in": 4}, by_parity(4))
    assert begin(first, plan_of(stateful()), {"in": 6}, by_parity(6)).version == 2
    with pytest.raises(
        TopologyError, match=r"topic in grew from 4 to 5 partitions: .* leave their state"
    ) as no:
        begin(first, plan_of(stateful()), {"in": 5}, by_parity(5))
    assert "a multiple of 4 partitions" in no.value.fix
    assert "growth.moves.keys=warn" in no.value.fix


def test_growth_is_warned_of_when_producers_place_keys(caplog: pytest.LogCaptureFixture) -> None:
    first = begin(NOTHING_RECORDED, plan_of(stateful()), {"in": 4}, by_parity(4))
    with caplog.at_level(logging.WARNING):
        assert begin(first, plan_of(stateful()), {"in": 5}, by_parity(5), keys_may_move=True)
    assert len(caplog.messages) == 1
    assert "topic in grew from 4 to 5 partitions" in caplog.messages[0]


def test_growth_is_free_when_it_is_recorded() -> None:
    first = begin(NOTHING_RECORDED, plan_of(stateful()), {"in": 5}, by_parity(5))
    assert begin(first, plan_of(stateful()), {"in": 5}, by_parity(5)) is first


def test_begin_is_refused_when_nobody_can_be_asked_for_the_groups() -> None:
    with pytest.raises(
        ConfigError, match="partition grouper 'own', and begin was called without a way to ask it"
    ):
        group_sources(plan_of(stateful()), {"in": 2}, None, known={}, bound={})
    by_default = group_sources(plan_of(stateful(), grouper=""), {"in": 2}, None, known={}, bound={})
    assert by_default[0].groups == ()
