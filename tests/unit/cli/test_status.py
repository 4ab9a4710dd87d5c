"""How fast tasks are, as the command shows it, on the in-memory Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kstreams.batch.protocol.slice.metadata_records import H_GENERATION, H_KIND, H_RUN, H_START
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from airflow_kstreams.testing.seeded_caller import SeededCaller
from tests.support.command_line import json_of
from tests.support.kafka.in_process import Application
from tests.support.kafka.parking_scene import RETRY, ParkingScene, parking_scene
from tests.support.kafka.written_over import leave_out_counts
from tests.unit.cli.test_app import invoke

PARTITIONS = 22


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> InMemoryKafka:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=1_000_000))
    kafka.create_topic("in", partitions=PARTITIONS)
    kafka.create_topic("out", partitions=PARTITIONS)
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda *given, **named: kafka)
    return kafka


@pytest.fixture
def application(kafka: InMemoryKafka) -> Application:
    """A record of partition n takes n milliseconds; each partition has 10."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())

    def slow(value: int) -> int:
        kafka.clock.sleep(value / 1_000)
        return value

    builder.stream("in").map_values(slow).send_to("out")
    for partition in range(PARTITIONS):
        for _ in range(10):
            kafka.append("in", partition.to_bytes(8, "big"), b"k", partition=partition)
    return Application(
        on=kafka,
        clock=kafka.clock,
        application_id="app",
        topology=builder.build(),
        settings={"autostop.at": "eol"},
    )


def shown() -> dict[str, list[str]]:
    """Return the rows of the table of tasks by their first cell."""
    result = invoke("status", "--application-id", "app", "--bootstrap-server", "in-memory:9092")
    assert (result.exit_code, result.stderr) == (0, "")
    _, found, table = result.stdout.partition("Tasks of run r")
    lines = [line for line in table.partition("Finished runs")[0].splitlines() if line.strip()]
    return {line[:10].strip(): line.split() for line in lines[2:]} if found else {}


def test_tasks_are_shown_with_the_slowest_first_when_a_run_goes_on(
    kafka: InMemoryKafka, application: Application
) -> None:
    slice_ = application.begin("r")
    assert shown() == {}, "none has committed"
    for group in (3, 20):
        application.task(slice_, 0, group)

    rows = shown()

    assert list(rows) == ["0_20", "0_3"]
    assert rows["0_20"] == ["0_20", "10", "50.0/s", "20.0", "ms", "20.0", "ms", "-", "-", "0", "-", "0"]


@pytest.mark.promise("text-of-others-is-printable")
def test_records_and_owners_are_printable_whatever_they_hold(
    kafka: InMemoryKafka, application: Application
) -> None:
    hostile = "x\x1b[2J\r\n\u202ey"
    application.run(f"run {hostile}")
    text = hostile.encode()
    kafka.append("app-metadata", text, b"key " + text)
    headers: list[tuple[str, bytes | None]] = [
        (name, text) for name in (H_KIND, H_RUN, H_GENERATION, H_START)
    ]
    kafka.append("app-metadata", b"\xff" + text, text, headers=headers)

    result = invoke("status", "--application-id", "app", "--bootstrap-server", "in-memory:9092", "--records")

    assert (result.exit_code, result.stderr) == (0, "")
    assert all(line.isprintable() for line in result.stdout.split("\n"))
    shown = r"x\x1b[2J\r\n\u202ey"
    assert f"<key {shown}:{shown}>" in result.stdout
    assert (
        f"<{shown}:\ufffd{shown}>  {shown} of run {shown}, generation {shown}, from {shown}" in result.stdout
    )
    assert f"run {shown}" in result.stdout


def test_other_tasks_are_put_together_when_a_run_had_many(
    kafka: InMemoryKafka, application: Application
) -> None:
    application.run("r")

    rows = shown()

    assert list(rows) == [*(f"0_{number}" for number in range(21, 1, -1)), "2 others"]
    assert rows["2 others"][:8] == ["2", "others", "20", "2,000/s", "0.0", "µs", "1.0", "ms"]


@pytest.mark.promise("metrics-unknown-not-zero")
def test_speed_is_unknown_when_there_was_no_room_for_what_was_measured(
    kafka: InMemoryKafka, application: Application
) -> None:
    application.tasks(application.begin("r"))
    leave_out_counts(kafka, "app")
    application.finish("r")
    assert shown()["0_3"] == ["0_3", "10", "-", "-", "-", "-", "-", "0", "-", "-"]


def test_calls_are_shown_by_node_and_their_threads_by_task(
    kafka: InMemoryKafka, application: Application
) -> None:
    async def twice(value: int) -> int:
        return 2 * value

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
    builder.stream("in").map_values_async(twice, name="ask").send_to("out")
    application.topology = builder.build()
    application.make_caller = lambda async_nodes: SeededCaller(async_nodes, seed=1)
    application.run("r")

    result = invoke("status", "--application-id", "app", "--bootstrap-server", "in-memory:9092")

    assert (result.exit_code, result.stderr) == (0, "")
    _, _, calls = result.stdout.partition("Calls of run r")
    calls, _, threads = calls.partition("Threads of calls of run r")
    rows = [line.split() for line in calls.splitlines() if " ask " in line]
    assert "ask (map values async " in calls
    assert f" at {Path(__file__).name}:" in calls
    assert {(row[0].partition("_")[0], row[5]) for row in rows[:-1]} == {("0", "10")}
    assert len({row[0] for row in rows[:-1]}) == 20
    assert [*rows[-1][:3], rows[-1][6]] == ["2", "others", "ask", "20"]
    of_tasks = [line.split() for line in threads.splitlines() if line.lstrip().startswith(("0_", "2 "))]
    assert len(of_tasks) == 21
    assert {row[-3] for row in of_tasks} == {"0"}, "replaced"

    document = json_of(
        invoke("status", "--application-id", "app", "--bootstrap-server", "in-memory:9092", "--json"),
        "status",
    )
    assert len(document["tasks"]) == PARTITIONS
    assert document["tasks"][0]["figures"]["process-total"] == 10
    assert document["tasks"][0]["calls"]["ask"]["call-total"] == 10


parking = pytest.fixture(parking_scene)


def test_parked_records_are_shown_with_where_they_are_when_a_run_leaves_some(
    parking: ParkingScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda *given, **named: parking.kafka)

    def lines() -> list[str]:
        result = invoke("status", "--application-id", "app", "--bootstrap-server", "in-memory:9092")
        assert (result.exit_code, result.stderr) == (0, "")
        return [" ".join(line.split()) for line in result.stdout.splitlines()]

    parking.down = {"bad"}
    parking.send("bad", "behind", partition=1)
    parking.run("r1")
    shown = lines()
    assert "state completed_with_parked(2), run r1, generation 1" in shown
    assert (
        "parked 2 records; the first is due at 2027-01-15T08:00:00+00:00, in the next run after that" in shown
    )
    assert f"enrich {RETRY} 1 2" in shown
    document = json_of(
        invoke("status", "--application-id", "app", "--bootstrap-server", "in-memory:9092", "--json"),
        "status",
    )
    assert document["parked"] == [{"node": "enrich", "topic": RETRY, "partition": 1, "records": 2}]
    assert (document["runs"][0]["parked"], document["parked_due_ms"]) == ({"enrich": 2}, 1_800_000_000_000)
    assert any(line.startswith("r1 ") and "completed_with_parked(2)" in line for line in shown)

    application = parking.application()
    application.begin("r2")
    assert f"enrich {RETRY} 1 2" in lines(), "begin has committed, and no task yet"
    parking.down = set()
    parking.run("r2")
    after = lines()
    assert not any("Parked" in line or line.startswith("parked") for line in after)
    assert any(line.startswith("r1 ") and "completed_with_parked(2)" in line for line in after)
