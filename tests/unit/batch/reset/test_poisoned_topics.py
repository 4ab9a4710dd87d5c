"""A program writes to the engine's own topics, and its record stops no cure: what looks or begins names the
record, and after the command of the text the next run counts on from where the last one stopped.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.protocol.slice import metadata_records as form
from airflow_kstreams.batch.protocol.slice.slice import RunPlan
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.plan import decode_json
from airflow_kstreams.streams.ports import Headers
from tests.support.kafka.reset_scene import APP, METADATA, ResetScene

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
