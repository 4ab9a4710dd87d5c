"""A program writes to the engine's own topics, and its record stops no cure: what looks or begins names the
record, and after the command of the text the next run counts on from where the last one stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from airflow_kstreams.batch.inspect.finished_runs import RunFollower
from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.protocol.slice import metadata_records as form
from airflow_kstreams.batch.protocol.slice.slice import RunPlan
from airflow_kstreams.streams.errors import ConfigError, KStreamsError, RunBusyError
from airflow_kstreams.streams.plan import decode_json
from airflow_kstreams.streams.ports import Headers
from tests.support.kafka.reset_scene import APP, LEDGER, METADATA, ResetScene

pytestmark = pytest.mark.promise("own-topics-can-be-poisoned")
#: What no wait of a run on a poisoned topic exceeds: a lease's hour and open transactions, in seconds.
DEADLINE_SECONDS = 4_000.0


def plan_with(**changes: object) -> Callable[[bytes], bytes]:
    """Return a change of a plan as JSON."""

    def changed(plan: bytes) -> bytes:
        return msgspec.json.encode({**decode_json(plan), **changes})

    return changed


#: Name -> (header of the last marker, what stands there instead).
MARKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "run that is no text": (form.H_RUN, lambda _: b"\xff\xfe"),
    "generation that is none": (form.H_GENERATION, lambda _: b"one"),
    "generation without an end": (form.H_GENERATION, lambda _: b"9" * 5_000),
    "owner that is no text": (form.H_OWNER, lambda _: b"\xff"),
    "version that is no text": (form.H_VERSION, lambda _: b"\xff"),
    "plan that is none": (form.H_PLAN, lambda _: b"[]"),
    "plan that is no text": (form.H_PLAN, lambda plan: plan.replace(b'"in"', b'"\xff"')),
    "plan that is deep": (form.H_PLAN, lambda _: b'{"x":' + b"[" * 100_000),
    "tasks without an end": (form.H_PLAN, plan_with(tasks={"0": 10**12})),
    "tasks of nothing": (form.H_PLAN, plan_with(tasks={"seven": 1})),
    "partitions without an end": (form.H_PLAN, plan_with(partitions={"in": 10**12, "mid": 2})),
    "partitions that are many": (
        form.H_PLAN,
        plan_with(partitions={f"topic-{number}": 200_000 for number in range(2_000)}),
    ),
    "topics that are missing": (form.H_PLAN, plan_with(partitions={}, topic_ids={})),
    "starts of nothing": (form.H_PLAN, plan_with(intermediate_starts={"mid": 0})),
    "pieces without an end": (form.H_PIECES, lambda _: b"9" * 18),
}


def begun() -> ResetScene:
    """A run that has counted, and another that was begun, and what none has read."""
    scene = ResetScene()
    scene.send("a", "b")
    scene.run("first")
    scene.send("a")
    scene.begin("second")
    return scene


def looked_at(scene: ResetScene) -> list[str]:
    """Look and begin; return the errors, none of which is another than ours."""
    told: list[str] = []
    before = scene.clock.monotonic_seconds()
    for look in (lambda: read_status(scene.kafka, APP, clock=scene.clock), lambda: scene.begin("third")):
        try:
            look()
        except KStreamsError as error:
            told.append(str(error))
    assert scene.clock.monotonic_seconds() - before < DEADLINE_SECONDS
    return told


def counts_on(scene: ResetScene) -> None:
    """The next run counts what no run has read, once."""
    scene.send("c")
    scene.run("after")
    last = dict(scene.counts())
    assert last == {"a": 2, "b": 1, "c": 1}


#: Another error speaks of these, or none: an owner is only shown.
SPOKEN_OF_ELSEWHERE = ("owner that is no text", "version that is no text", "pieces without an end")


@pytest.mark.remedy("metadata._readable")
@pytest.mark.parametrize("name", [name for name in MARKERS if name not in SPOKEN_OF_ELSEWHERE])
def test_slice_is_dropped_when_its_marker_cannot_be_read(name: str) -> None:
    _dropped(name)


@pytest.mark.parametrize("name", SPOKEN_OF_ELSEWHERE)
def test_slice_is_dropped_when_its_marker_is_anothers(name: str) -> None:
    _dropped(name)


def _dropped(name: str) -> None:
    """Poison the marker, follow the text, and count on."""
    header, change = MARKERS[name]
    scene = begun()
    marker = [record for record in scene.kafka.records(METADATA) if record.key() == APP.encode()][-1]
    headers: Headers = [(each, value) for each, value in marker.headers() or () if each != header]
    old = dict(marker.headers() or ()).get(header) or b""
    assert header == form.H_PIECES or old
    scene.kafka.append(METADATA, marker.value(), marker.key(), headers=[*headers, (header, change(old))])

    for text in looked_at(scene):
        assert "--delete-stopoffsets" in text
    scene.reset(delete_stop_offsets=True)

    counts_on(scene)


#: Name -> header of a stop offset that is changed, or its value, and what stands there.
STOPS: dict[str, tuple[str, bytes | None]] = {
    "topic that is missing": (form.H_TOPIC, None),
    "topic that is no text": (form.H_TOPIC, b"\xff"),
    "topic of nobody": (form.H_TOPIC, b"others"),
    "partition that is none": (form.H_PARTITION, b"x"),
    "partition far off": (form.H_PARTITION, b"4000000000"),
    "start that is none": (form.H_START, b"-1"),
    "epoch that is none": (form.H_END_EPOCH, b"\xff"),
    "value that is none": ("", b"\xff"),
    "value without an end": ("", b"9" * 5_000),
}


@pytest.mark.remedy("metadata._readable")
@pytest.mark.parametrize("name", STOPS)
def test_slice_is_dropped_when_a_stop_offset_cannot_be_read(name: str) -> None:
    header, instead = STOPS[name]
    scene = begun()
    stop = [record for record in scene.kafka.records(METADATA) if record.key() == b"in_0"][-1]
    headers: Headers = [(each, value) for each, value in stop.headers() or () if each != header]
    headers += [(header, instead)] if header and instead is not None else []
    scene.kafka.append(METADATA, stop.value() if header else instead, stop.key(), headers=headers)

    told = looked_at(scene)

    assert len(told) == 2
    for text in told:
        assert f"{METADATA}-0@" in text
        assert "--delete-stopoffsets" in text
    scene.reset(delete_stop_offsets=True)
    counts_on(scene)


def test_plan_has_no_more_tasks_than_a_cluster_has_partitions() -> None:
    scene = begun()
    marker = [record for record in scene.kafka.records(METADATA) if record.key() == APP.encode()][-1]
    plan = decode_json(dict(marker.headers() or ())[form.H_PLAN] or b"", RunPlan)
    with pytest.raises(ValueError, match="in all"):
        msgspec.structs.replace(plan, tasks={str(number): 200_000 for number in range(5)})


GARBAGE = (b"\xff", b"[]", b"{}", b"9" * 5_000, b'{"x":' + b"[" * 100_000)
#: Name -> key and value of a record that a program writes to the ledger.
RECORDS: dict[str, tuple[bytes, bytes | None]] = {
    **{f"entry {number}": (b"stray", value) for number, value in enumerate(GARBAGE)},
    **{f"entry of a run {number}": (b"first", value) for number, value in enumerate(GARBAGE)},
    **{f"lease {number}": (b"__lease__", value) for number, value in enumerate(GARBAGE)},
    **{f"checkpoint {number}": (b"__checkpoint__", value) for number, value in enumerate(GARBAGE)},
    "checkpoint that is gone": (b"__checkpoint__", None),
    "key that is no text": (b"\xff\xfe", b"{}"),
    "lease without an end": (
        b"__lease__",
        b'{"owner_run_id":"x","order":[0,1],"owner":"o","generation":1,"expires_ms":9,"lease_ms":9'
        + b"0" * 17
        + b"}",
    ),
    "run without an end": (
        b"stray",
        b'{"run_id":"stray","application_id":"app","begun_ms":1,"finished_ms":9223372036854775807,'
        b'"generation":1,"empty":false,"inputs":[]}',
    ),
}


@pytest.mark.promise("ledgers-are-repaired")
@pytest.mark.remedy("fold.decode")
@pytest.mark.parametrize("name", [name for name in RECORDS if not name.startswith("checkpoint that")])
def test_nothing_known_is_lost_when_a_ledger_is_repaired(name: str) -> None:
    _repaired(name)


@pytest.mark.promise("ledgers-are-repaired")
@pytest.mark.remedy("fold._refuse_lost_checkpoint")
def test_nothing_known_is_lost_when_the_checkpoint_of_a_repaired_ledger_was_deleted() -> None:
    _repaired("checkpoint that is gone")


def _repaired(name: str) -> None:
    """Poison the ledger, follow the text, and count on."""
    key, value = RECORDS[name]
    scene = begun()
    before = scene.ledger
    scene.kafka.append(LEDGER, value, key)

    told = looked_at(scene)

    assert len(told) == 2
    for text in told:
        assert "--repair-ledger" in text
    plan = scene.reset(repair_ledger=True)
    assert plan.repaired
    after = scene.ledger
    for kept in ("assignment", "own_topics", "changelog_ends", "reset", "accepted", "stops", "topic_ids"):
        assert getattr(after, kept) == getattr(before, kept), kept
    assert before.lease is not None
    assert after.lease == msgspec.structs.replace(before.lease, checkpoint=after.checkpoint)
    assert after.all_runs().keys() == before.all_runs().keys()
    assert (after.past.finished, after.past.left) == (before.past.finished, before.past.left)
    assert not scene.reset(repair_ledger=True).repaired
    scene.run("second")
    counts_on(scene)


@pytest.mark.promise("ledgers-are-repaired")
@pytest.mark.parametrize("value", [*GARBAGE, None], ids=lambda value: repr(value)[:20])
def test_what_only_the_checkpoint_held_is_said_when_the_cleaner_took_it(value: bytes | None) -> None:
    scene = begun()
    before = scene.ledger
    scene.kafka.append(LEDGER, value, b"__checkpoint__")
    scene.kafka.compact(LEDGER)
    assert len(looked_at(scene)) == 2

    plan = scene.reset(repair_ledger=True)

    assert any("partition groups" in line for line in plan.lost)
    after = scene.ledger
    assert after.all_runs().keys() == before.all_runs().keys()
    for kept in ("finished", "left", "new_ms"):
        assert getattr(after.past, kept) == getattr(before.past, kept) != 0, kept


@pytest.mark.promise("ledgers-are-repaired")
@pytest.mark.parametrize("value", [b"{}", None], ids=["unreadable", "deleted"])
def test_checkpoint_that_is_passed_over_is_said_with_what_it_may_have_held(value: bytes | None) -> None:
    scene = begun()
    scene.kafka.append(LEDGER, value, b"__checkpoint__")
    at = scene.kafka.records(LEDGER)[-1].offset()

    plan = scene.reset(repair_ledger=True)

    (line,) = plan.lost
    assert f"{LEDGER}-0@{at}" in line
    assert "checkpoint" in line
    assert "a reset, a continuous run or an accepted offset" in line


@pytest.mark.promise("ledgers-are-repaired")
def test_ledger_is_left_alone_when_all_of_it_can_be_read() -> None:
    scene = begun()
    before = scene.dump()["logs"][LEDGER]
    assert not scene.reset(repair_ledger=True).repaired
    assert scene.dump()["logs"][LEDGER] == before


@pytest.mark.promise("ledgers-are-repaired")
@pytest.mark.remedy("ledger_repair.refuse_repair")
def test_ledger_is_not_repaired_when_a_driver_holds_the_lease() -> None:
    scene = begun()
    driver = scene.coordinator()
    scene.begin("second", coordinator=driver, order=2)
    scene.kafka.append(LEDGER, b"{}", b"stray")
    with pytest.raises(RunBusyError, match="has not released its lease"):
        scene.reset(repair_ledger=True)
    assert scene.reset(repair_ledger=True, force=True).repaired
    assert scene.ledger.held_lease is not None
    driver.close()


@pytest.mark.promise("ledgers-are-repaired")
def test_run_is_seen_behind_a_record_that_a_repair_has_replaced() -> None:
    scene = begun()
    scene.kafka.append(LEDGER, b"{}", b"stray")
    assert scene.reset(repair_ledger=True).repaired
    scene.run("second")
    with RunFollower(scene.kafka, APP, name="watch", from_start=True) as runs:
        assert [run.run_id for _, run in runs.until_now()] == ["first", "second"]


def forged(change: Callable[[dict[str, Any]], None], scene: ResetScene) -> None:
    """Write the last checkpoint again, with a change and in its right place."""
    last = [record for record in scene.kafka.records(LEDGER) if record.key() == b"__checkpoint__"][-1]
    checkpoint = decode_json(last.value() or b"")
    checkpoint["at"] = scene.kafka.records(LEDGER)[-1].offset() + 2
    change(checkpoint)
    scene.kafka.append(LEDGER, msgspec.json.encode(checkpoint), last.key())


RESET = {"stage": "deleting", "begun_ms": 1, "command": "airflow-kstreams reset app"}
#: Parts of a checkpoint that name topics of others for a reset to delete.
OTHERS: dict[str, Callable[[dict[str, Any]], None]] = {
    "reset": lambda found: found.update(reset={**RESET, "deleting": {"out": 1}}),
    "own topics": lambda found: found["own_topics"]["topics"].update(
        {"other-x-changelog": next(iter(found["own_topics"]["topics"].values()))}
    ),
    "groups": lambda found: found["assignment"]["subtopologies"]["2"].update(changelogs={"out": "x"}),
}


@pytest.mark.promise("resets-delete-own-topics")
@pytest.mark.parametrize("part", OTHERS)
def test_topic_of_others_stays_when_a_forged_checkpoint_names_it_for_deletion(part: str) -> None:
    scene = begun()
    scene.kafka.create_topic("other-x-changelog")
    forged(OTHERS[part], scene)

    told = looked_at(scene)

    assert len(told) == 2
    for text in told:
        assert "names topics of others" in text
        assert "--repair-ledger" in text
    assert scene.reset(repair_ledger=True).repaired
    scene.run("second")
    scene.reset()
    assert {"out", "other-x-changelog"} <= scene.kafka.admin().topic_names()


@pytest.mark.promise("resets-delete-own-topics")
@pytest.mark.parametrize("part", ["changelogs", "repartition_topics"])
def test_topic_of_others_stays_when_a_forged_plan_names_it_for_deletion(part: str) -> None:
    scene = begun()
    marker = [record for record in scene.kafka.records(METADATA) if record.key() == APP.encode()][-1]
    headers = dict(marker.headers() or ())
    plan = decode_json(headers[form.H_PLAN] or b"")
    if part == "changelogs":
        plan["topology"]["subtopologies"][2]["changelogs"]["counts"] = "out"
    else:
        plan["topology"]["repartition_topics"] = {"in": None}
    scene.kafka.append(
        METADATA,
        marker.value(),
        marker.key(),
        headers=[*(headers | {form.H_PLAN: msgspec.json.encode(plan)}).items()],
    )

    told = looked_at(scene)

    assert len(told) == 2
    for text in told:
        assert "--delete-stopoffsets" in text
    scene.reset(delete_stop_offsets=True)
    counts_on(scene)


@pytest.mark.remedy("reset_plan.ResetRequest.check: give it alone")
def test_repair_is_made_alone() -> None:
    scene = begun()
    with pytest.raises(ConfigError, match="does nothing besides"):
        scene.reset(repair_ledger=True, delete_stop_offsets=True)
    assert not scene.reset(repair_ledger=True).repaired


@pytest.mark.promise("ledgers-are-repaired")
def test_runs_that_finished_behind_the_last_readable_checkpoint_count() -> None:
    scene = begun()
    scene.run("second")
    before = scene.ledger
    last = [record for record in scene.kafka.records(LEDGER) if record.key() == b"__checkpoint__"][-1]
    records = [record for record in scene.kafka.records(LEDGER) if record is not last]
    scene.kafka.admin().delete_topics([LEDGER])
    scene.kafka.create_topic(LEDGER, cleanup_policy="compact")
    for record in records:
        if record.key() != b"__lease__":
            scene.kafka.append(LEDGER, record.value(), record.key(), headers=record.headers())
    scene.kafka.append(LEDGER, b"{}", b"__checkpoint__")

    plan = scene.reset(repair_ledger=True)

    assert plan.lost
    assert scene.ledger.all_runs().keys() == before.all_runs().keys()
    assert scene.ledger.past.last is not None
    assert scene.ledger.past.last.run_id == "second"
