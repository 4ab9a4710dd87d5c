"""``airflow-kstreams dead-letters`` on the in-memory Kafka: options, tables, one line per error."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_kstreams.streams.records.dead_letter_format import ConsumedAt, dead_letter_headers, letters_of
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.windows import TumblingWindow
from airflow_kstreams.testing import InMemoryKafka
from tests.support.command_line import fitting, json_of
from tests.unit.batch.replay import test_late_letters as late_letters
from tests.unit.cli.test_app import invoke

DEAD = "app-dead-letter"
OPTIONS = ("--application-id", "app", "--bootstrap-server", "in-memory:9092")
REPLAY = ("dead-letters", "replay", *OPTIONS)
LIST = ("dead-letters", "list", *OPTIONS)
SHOW = ("dead-letters", "show", *OPTIONS)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> InMemoryKafka:
    """Two letters from ``in`` and one of a timer; the command's cluster is this one."""
    kafka = InMemoryKafka()
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda config, **_: kafka)
    kafka.create_topic("in")
    for topic in (DEAD, "named"):
        kafka.create_topic(topic)
        for origin in (b"in", b"in", b""):
            headers = [("__streams.errors.topic", origin), ("__streams.errors.partition", b"0")]
            kafka.append(topic, topic.encode(), b"k", headers=[("own", b"1"), *headers])
    return kafka


@pytest.fixture
def airlines(kafka: InMemoryKafka) -> InMemoryKafka:
    """Four letters of flights, which failed at two nodes; a timer's; and one that left its value out."""
    kafka.create_topic("flights")
    kafka.admin().delete_topics([DEAD])
    kafka.create_topic(DEAD)
    flights = (
        ("UA", KeyError("UA")),
        ("AA", ValueError("AA\nsecond")),
        ("UA", KeyError("UA")),
        ("DL", KeyError("DL")),
    )
    for number, (airline, error) in enumerate(flights):
        value = b'{"airline": "%s", "number": %d}' % (airline.encode(), number)
        kafka.append(
            "flights", value, airline.encode(), timestamp_ms=number * 1_000, headers=[("own", b"\xff")]
        )
        record: Any = kafka.records("flights")[-1]
        headers = dead_letter_headers(record, error, "join" if number else "parse", ConsumedAt())
        kafka.append(DEAD, value, airline.encode(), timestamp_ms=number * 1_000, headers=headers)
    kafka.append(
        DEAD,
        None,
        None,
        timestamp_ms=7,
        headers=dead_letter_headers(None, KeyError("t"), "timer", ConsumedAt()),
    )
    smaller = list(letters_of(record, ValueError("large"), "join", ConsumedAt()))[1]
    kafka.append(DEAD, smaller.value, smaller.key, timestamp_ms=9_000, headers=smaller.headers)
    return kafka


def rows(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


# == replay


def test_records_are_back_and_counted_when_run(kafka: InMemoryKafka) -> None:
    result = invoke(*REPLAY)

    assert (result.exit_code, result.stderr) == (0, "")
    assert ["in", "2"] in [line.split() for line in result.stdout.splitlines()]
    assert "Left alone: 1 letter " in result.stdout
    assert result.stdout.endswith("Done.\n")
    assert kafka.values("in") == [DEAD.encode()] * 2
    assert "There is nothing to bring back from app-dead-letter." in invoke(*REPLAY).stdout


@pytest.mark.promise("dry-runs-change-nothing")
def test_nothing_changes_when_run_dry(kafka: InMemoryKafka) -> None:
    result = invoke(*REPLAY, "--dead-letter-topic", "named", "--dry-run")

    assert (result.exit_code, result.stderr) == (0, "")
    assert "Dead letters of named" in result.stdout
    assert result.stdout.endswith("Dry run: nothing was changed.\n")
    assert kafka.values("in") == []


def test_one_line_says_what_to_do_when_there_is_no_such_topic(kafka: InMemoryKafka) -> None:
    for command in (REPLAY, LIST, (*SHOW, "in-0@0")):
        result = invoke(*command, "--dead-letter-topic", "misspelt")

        assert result.exit_code == 1
        assert (
            "'misspelt' does not exist [KS-APP-001] -- what to do: check the application id" in result.stderr
        )
        assert result.stderr.count("\n") == 1


def test_selection_is_told_before_and_counted_after(airlines: InMemoryKafka) -> None:
    where = ("--where", "exception=KeyError", "--where", "value.airline=UA")

    dry = invoke(*REPLAY, *where, "--dry-run")
    done = invoke(*REPLAY, *where, "--limit", "1")

    assert ["flights", "2"] in rows(dry.stdout)
    assert "4 letters outside --where" in dry.stdout
    assert done.exit_code == 0
    assert re.match(
        r"Replay of letters with exception=KeyError and value.airline=UA, at most 1 "
        r"\(1 record to bring back\)\..* --replay-id 'manual__",
        done.stdout,
    )
    assert ["flights", "1"] in rows(done.stdout)
    assert "For a later replay: all letters past the limit of 1 record." in done.stdout
    assert airlines.values("flights")[4:] == [b'{"airline": "UA", "number": 0}']
    assert ["flights", "3"] in rows(invoke(*REPLAY).stdout)


def test_named_replay_goes_on_to_its_limit_and_no_further(airlines: InMemoryKafka) -> None:
    for _ in range(2):
        assert invoke(*REPLAY, "--limit", "1", "--replay-id", "mine").exit_code == 0
    assert len(airlines.values("flights")) == 5

    other = invoke(*REPLAY, "--limit", "2", "--replay-id", "mine")
    assert other.exit_code == 1
    assert "'mine' of 'app-dead-letter' was begun for letters, at most 1, and is asked for" in other.stderr


@pytest.mark.promise("late-letters-are-counted")
@pytest.mark.parametrize("known", [True, False])
def test_records_that_come_too_late_are_said_before_and_after(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    scene = late_letters.Scene(late_letters.Code(late_letters.counted(TumblingWindow(size_ms=100))))
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda config, **_: scene.kafka)
    scene.send("in", [1_000_000] * 3, late_letters.BAD)
    scene.send("in", [100_000_000])
    scene.run()
    if not known:
        scene.app.run_continuously("endless").close()

    for result in (invoke(*REPLAY, "--dry-run"), invoke(*REPLAY)):
        assert result.exit_code == 0
        assert (
            "Too late: 3 of these records, dated where all windows of 'x' have closed; the next run drops "
            "there what reaches it, and counts it as late." in result.stdout
        ) == known
        assert (
            "Of 3 of these records it is not known whether their windows have closed; the next run counts as "
            "late what it drops." in result.stdout
        ) != known


@pytest.mark.remedy("dead_letters._refuse_nothing")
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_conditions_that_no_letter_fits_are_an_error(airlines: InMemoryKafka, dry: tuple[str, ...]) -> None:
    result = invoke(*REPLAY, "--where", "value.airline=ZZ", *dry)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(
        "error: app-dead-letter has no letters with value.airline=ZZ that wait for a replay; 6 others do "
        "[KS-APP-001] --"
    )
    assert "app-dead-letter-replays" not in airlines.topics()
    assert "airflow-kstreams dead-letters list" in result.stderr
    listed = {name for row in rows(invoke(*LIST).stdout) for name in row if name in ("join", "parse")}
    assert listed == {"join", "parse"}
    for node in listed:
        assert invoke(*REPLAY, "--where", f"node={node}", *dry).exit_code == 0


@pytest.mark.parametrize(
    ("options", "exit_code", "said"),
    [
        (("--where", "airline"), 2, "'airline' is not FIELD=VALUE"),
        (("--where", "=UA"), 2, "'=UA' is not FIELD=VALUE"),
        (("--where", "topic=a", "--where", "topic=b"), 2, "topic is given twice"),
        (
            ("--where", "airline=UA"),
            1,
            "letters have no field 'airline' [KS-APP-001] -- what to do: use topic,",
        ),
        (("--where", "partition=x"), 1, "no letter has partition=x"),
    ],
)
def test_wrong_conditions_are_refused_and_nothing_is_done(
    airlines: InMemoryKafka, options: tuple[str, ...], exit_code: int, said: str
) -> None:
    for command in (REPLAY, LIST):
        result = invoke(*command, *options)
        assert (result.exit_code, result.stdout) == (exit_code, "")
        assert said in result.stderr
    assert len(airlines.values("flights")) == 4


def test_limit_below_one_is_a_wrong_command_line(airlines: InMemoryKafka) -> None:
    assert invoke(*REPLAY, "--limit", "0").exit_code == 2


# == list


@pytest.mark.promise("dead-letter-values-on-request")
def test_letters_are_counted_by_what_failed_and_the_newest_are_listed(airlines: InMemoryKafka) -> None:
    invoke(*REPLAY, "--where", "node=parse")

    result = invoke(*LIST, "--limit", "3")

    assert (result.exit_code, result.stderr) == (0, "")
    found = rows(result.stdout)
    times = ["1970-01-01 00:00:02.000", "1970-01-01 00:00:03.000"]
    assert ["flights", "join", "builtins.KeyError", *times, "2", "0", "2"] in found
    assert ["flights", "parse", "builtins.KeyError", *["1970-01-01 00:00:00.000"] * 2, "0", "1", "1"] in found
    assert ["-", "timer", "builtins.KeyError", *["1970-01-01 00:00:00.007"] * 2, "0", "0", "1"] in found
    newest = [row for row in found if row[0].startswith(f"{DEAD}-0@")]
    assert [(row[0][-1], row[1], row[-1]) for row in newest] == [
        ("5", "flights-0@3", "stays"),
        ("3", "flights-0@3", "waiting"),
        ("2", "flights-0@2", "waiting"),
    ]
    assert "... and 3 more" in result.stdout
    assert "Letters: 6; 3 wait for a replay, 1 were replayed." in result.stdout
    assert "2 stay: they belong to no consumed record" in result.stdout
    assert "UA" not in result.stdout, "no values"

    document = json_of(invoke(*LIST, "--limit", "3", "--json"), "dead-letters list")
    assert document["letters"] == sum(group["letters"] for group in document["groups"]) == 6
    assert [(each["record"], each["replay"]) for each in document["newest"]] == [
        ("flights-0@3", "stays"),
        ("flights-0@3", "waiting"),
        ("flights-0@2", "waiting"),
    ]
    assert "UA" not in str(document)


@pytest.mark.promise("dead-letter-values-on-request")
def test_json_of_a_letter_holds_its_values_only_on_request(airlines: InMemoryKafka) -> None:
    hidden = json_of(invoke(*SHOW, f"{DEAD}-0@1", "--json"), "dead-letters show")
    assert "airline" not in str(hidden)
    (letter,) = json_of(invoke(*SHOW, f"{DEAD}-0@1", "--values", "--json"), "dead-letters show")["letters"]
    assert (letter["key"], letter["value"]) == ("AA", '{"airline": "AA", "number": 1}')
    assert (letter["record"], letter["error"]["node"]) == ("flights-0@1", "join")
    assert letter["headers"] == [{"name": "own", "bytes": 1, "text": "ff"}]


def test_json_of_a_replay_is_its_plan_and_its_result(airlines: InMemoryKafka) -> None:
    plan = json_of(invoke(*REPLAY, "--dry-run", "--json"), "dead-letters replay")
    done = invoke(*REPLAY, "--json", "--replay-id", "mine")
    assert done.stderr.startswith("Replay of ")
    result = fitting(done.stdout, "dead-letters replay")
    assert plan["records_per_topic"] == result["records_per_topic"] == {"flights": 4}
    assert (plan["dry_run"], result["dry_run"], result["replay_id"]) == (True, False, "mine")


def test_looks_bound_every_request_and_all_together(
    kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds: list[tuple[int, int | None]] = []

    def made(_: object, settings: ApplicationSettings, look_ms: int | None, **__: object) -> InMemoryKafka:
        bounds.append((settings.client_timeout_ms, look_ms))
        return kafka

    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", made)
    for command in ((*LIST,), (*SHOW, f"{DEAD}-0@0")):
        for more in ((), ("--timeout", "60"), ("--timeout", "0")):
            assert invoke(*command, *more).exit_code == 0
        (each, together), asked_for, unbounded = bounds
        assert each < (together or 0) < 10_000
        assert (asked_for, unbounded) == ((30_000, 60_000), (30_000, None))
        bounds.clear()


@pytest.mark.promise("looking-at-dead-letters-changes-nothing")
def test_listing_changes_nothing(airlines: InMemoryKafka) -> None:
    topics = airlines.topics()

    assert invoke(*LIST).exit_code == invoke(*SHOW, "flights-0@0").exit_code == 0

    assert airlines.topics() == topics
    assert not airlines.admin().group_ids()


def test_only_letters_that_fit_are_listed(airlines: InMemoryKafka) -> None:
    result = invoke(*LIST, "--where", "value.airline=UA")

    assert "Letters: 2; 2 wait for a replay" in result.stdout
    none = invoke(*LIST, "--where", "topic=none")
    assert (none.exit_code, none.stdout) == (0, "There are no letters with topic=none in app-dead-letter.\n")


# == show


@pytest.mark.promise("dead-letter-values-on-request")
def test_one_letter_is_shown_whole_and_its_values_only_on_request(airlines: InMemoryKafka) -> None:
    result = invoke(*SHOW, f"{DEAD}-0@1")

    assert (result.exit_code, result.stderr) == (0, "")
    found = rows(result.stdout)
    for row in (
        ["record", "flights-0@1"],
        ["replay", "waiting"],
        ["__streams.errors.exception", "builtins.ValueError"],
        ["__streams.errors.message", r"AA\nsecond"],
        ["__streams.errors.node", "join"],
        ["key", "2 bytes (--values shows them)"],
        ["value", "30 bytes (--values shows them)"],
        ["header own", "1 byte (--values shows them)"],
    ):
        assert row in found
    assert "\nValueError: AA\nsecond\n" in result.stdout, "the traceback has its lines"
    shown = rows(invoke(*SHOW, f"{DEAD}-0@1", "--values").stdout)
    assert ["value", '{"airline": "AA", "number": 1}'] in shown
    assert ["key", "AA"] in shown
    assert ["header own", "ff"] in shown


def test_all_letters_of_a_record_are_shown_when_its_place_is_given(airlines: InMemoryKafka) -> None:
    result = invoke(*SHOW, "flights-0@3")

    titles = [row[0] for row in rows(result.stdout) if row[0].startswith("Dead letter ")]
    assert titles == [f"Dead letter {DEAD}-0@3", f"Dead letter {DEAD}-0@5"]
    assert ["value", "none"] in rows(result.stdout)


@pytest.mark.promise("dead-letter-values-on-request")
def test_errors_quote_values_only_on_request(airlines: InMemoryKafka) -> None:
    for place in (f"{DEAD}-0@0", f"{DEAD}-0@2"):
        hidden, whole = invoke(*SHOW, place).stdout, invoke(*SHOW, place, "--values").stdout

        assert "UA" not in hidden
        assert ["__streams.errors.message", "'***'"] in rows(hidden)
        assert "\nKeyError: '***'\n" in hidden
        assert "\nKeyError: 'UA'\n" in whole
    timers = f"{DEAD}-0@4"
    assert "\nKeyError: '***'\n" in invoke(*SHOW, timers).stdout, "what it quotes may be a state's data"
    assert "\nKeyError: 't'\n" in invoke(*SHOW, timers, "--values").stdout


@pytest.mark.parametrize(
    ("serde", "shown"),
    [
        ("json", "{'airline': 'AA', 'number': 1}"),
        ("string", '{"airline": "AA", "number": 1}'),
        ("bytes", b'{"airline": "AA", "number": 1}'.hex(" ")),
    ],
)
def test_values_are_read_by_the_given_serde(airlines: InMemoryKafka, serde: str, shown: str) -> None:
    found = rows(invoke(*SHOW, f"{DEAD}-0@1", "--value-serde", serde).stdout)

    assert ["value", shown] in found
    assert ["key", "2 bytes (--values shows them)"] in found


def test_bytes_are_shown_in_any_case_when_the_serde_does_not_read_them(airlines: InMemoryKafka) -> None:
    result = invoke(*SHOW, f"{DEAD}-0@1", "--key-serde", "int64")

    assert result.exit_code == 0
    assert re.search(r"key +not int64 \(.*\): AA", result.stdout)


@pytest.mark.parametrize("place", [f"{DEAD}-0@6", f"{DEAD}-1@0", "flights-0@17", "nowhere-0@0"])
def test_unknown_letter_is_an_error(airlines: InMemoryKafka, place: str) -> None:
    result = invoke(*SHOW, place)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: {place} has no dead letter:")


@pytest.mark.parametrize("place", ["flights", "flights-0", "flights-0-1", "flights@1", "-0@1", "flights-x@1"])
def test_place_that_is_none_is_a_wrong_command_line(airlines: InMemoryKafka, place: str) -> None:
    result = invoke(*SHOW, "--", place)

    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.promise("text-of-others-is-printable")
def test_letters_are_printable_whatever_they_hold(kafka: InMemoryKafka) -> None:
    hostile = b"x\x1b[2J\r\n\xe2\x80\xaey"
    names = ("topic", "node", "exception", "message", "stacktrace")
    headers = [(f"__streams.errors.{name}", hostile) for name in names]
    headers += [("__streams.errors.partition", b"0"), ("__streams.errors.offset", b"3")]
    kafka.append(DEAD, hostile, hostile, headers=[("x\x1b\n", hostile), *headers])
    for command in (LIST, (*SHOW, f"{DEAD}-0@3", "--values"), (*SHOW, f"{DEAD}-0@3")):
        result = invoke(*command)
        assert (result.exit_code, result.stderr) == (0, "")
        # A narrow column folds it.
        assert command is LIST or r"x\x1b[2J\r\n\u202ey" in result.stdout
        assert all(line.isprintable() for line in result.stdout.split("\n"))
