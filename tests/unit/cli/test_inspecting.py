"""What runs, lag and plan print, on the in-memory Kafka; their JSON fits its schemas."""

from __future__ import annotations

import dataclasses
import html
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_kstreams import inspect
from airflow_kstreams.batch.inspect.runs.suspicions import Bounds, untaken
from airflow_kstreams.inspect.surroundings import examination
from airflow_kstreams.inspect.tables_of import odd_text
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.command_line import json_error_of, json_of
from tests.support.kafka.in_process import Application
from tests.unit.cli.test_app import invoke

if TYPE_CHECKING:
    from typer.testing import Result

FILE = """
from airflow_kstreams.streams import KStreamBuilder, serdes

def topology():
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("orders").group_by_key().count(store="totals")
    return builder.build()
"""
HOUR_SECONDS, HOUR_MS = 3_600, 3_600_000


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> InMemoryKafka:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=1_700_000_000_000))
    kafka.create_topic("orders")
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda *given, **named: kafka)
    return kafka


@pytest.fixture
def shop(kafka: InMemoryKafka, tmp_path: Path) -> Application:
    """It has finished five runs, of which the last one read far fewer records, and two records wait."""
    path = tmp_path / "shop.py"
    path.write_text(FILE)
    shop = Application(
        on=kafka,
        clock=kafka.clock,
        application_id="shop",
        topology=ApplicationFile.read(path).topology(),
        settings={"autostop.at": "eol"},
    )
    for number, records in enumerate((20, 20, 20, 20, 1)):
        feed(kafka, records)
        slice_ = shop.begin(f"r{number}")
        shop.tasks(slice_)
        kafka.clock.sleep(30)
        shop.finish(f"r{number}")
        kafka.clock.sleep(HOUR_SECONDS)
    feed(kafka, 2)
    return shop


def feed(kafka: InMemoryKafka, records: int) -> None:
    for _ in range(records):
        kafka.append("orders", b"v", b"k", timestamp_ms=kafka.clock.now_ms())


def look(command: str, *arguments: str) -> Result:
    return invoke(command, *arguments, "--application-id", "shop", "--bootstrap-server", "in-memory:9092")


def lines(result: Result) -> list[list[str]]:
    assert (result.exit_code, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines())) <= 160
    return [words for line in result.stdout.splitlines() if (words := line.split())]


def words_of(result: Result) -> str:
    """Return what was printed as words, without the lines of tables."""
    assert (result.exit_code, result.stderr) == (0, "")
    return " ".join(result.stdout.replace("\u2500", "").split())


def test_runs_are_listed_and_what_is_odd_is_said_below(shop: Application) -> None:
    shown = lines(look("runs"))
    assert shown[3] == ["r4", "2023-11-15", "02:15:20", "finished?", "30", "s", "1", "0", "0"]
    assert [words[0] for words in shown[3:8]] == ["r4", "r3", "r2", "r1", "r0"]
    assert " ".join(shown[8]) == (
        "r4: 1 record in, far fewer than the 20 of the middle one of the last 4 runs "
        "(suspicion.records.times=5)"
    )


def test_runs_are_chosen_and_followed_page_by_page(shop: Application) -> None:
    assert [words[0] for words in lines(look("runs", "--odd"))[3:4]] == ["r4"]
    shown = lines(look("runs", "--limit", "2"))
    assert " ".join(shown[-1]) == "Older ones: --before 'r3'. Finished in all: 5 runs."
    assert [words[0] for words in lines(look("runs", "--before", "r3", "--limit", "2"))[3:5]] == ["r2", "r1"]
    found = json_of(look("runs", "--json", "--since", "2023-11-15T01:00:00", "--state", "finished"), "runs")
    assert [run["run_id"] for run in found["runs"]] == ["r4", "r3"]
    assert found["runs"][0]["suspicions"][0]["rule"] == "fewer"


def test_run_is_shown_with_its_books(shop: Application) -> None:
    text = words_of(look("runs", "--show", "r0"))
    assert (
        "state finished begun (UTC) 2023-11-14 22:13:20 finished (UTC) 2023-11-14 22:13:50 took 30 s" in text
    )
    assert "Records: read 20 = written 0 + left out 0 + taken in by operators 20" in text
    assert "read of orders 20 offsets, 1 partition" in text
    assert "Slowest tasks task took in out restored commits attempts 0_0 " in text
    found = json_of(look("runs", "--show", "r4", "--json"), "runs show")
    assert (found["run"]["state"], found["run"]["suspicions"][0]["rule"]) == ("finished", "fewer")
    assert found["audit"]["rows"] == [{"place": "orders", "what": "read", "records": 1}]


def test_runs_are_compared(shop: Application) -> None:
    text = words_of(look("runs", "--compare", "r0", "r4"))
    assert "First r0, second r4 first second change" in text
    assert "records in 20 1 -95%" in text
    assert "seconds 30 30 drivers 1 1 records in per second 0.667 0.033 -95%" in text
    assert "orders: read 20 1 -95%" in text
    found = json_of(look("runs", "--compare", "r0", "r1", "--json"), "runs compare")
    assert found["other_topology"] is False
    assert {each["what"]: (each["first"], each["second"]) for each in found["figures"]}["records in"] == (
        20,
        20,
    )


def test_page_of_a_run_loads_nothing_and_holds_no_markup_of_others(shop: Application, tmp_path: Path) -> None:
    shop.run("<script>alert(1)</script>")
    shop.run("moves \x1b[2J the cursor")
    assert all(map(str.isprintable, look("runs", "--html", "moves \x1b[2J the cursor").stdout.splitlines()))
    file = tmp_path / "run.html"

    result = look("runs", "--html", "<script>alert(1)</script>", "--output", str(file))

    assert (result.exit_code, result.stderr) == (0, "")
    page = file.read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert look("runs", "--html", "<script>alert(1)</script>").stdout == page
    assert not re.search(r"(src|href)=", page)


@pytest.mark.parametrize(
    "options",
    [
        ("--show", "r0", "--html", "r0"),
        ("--html", "r0", "--json"),
        ("--output", "run.html"),
    ],
)
def test_options_that_do_not_go_together_are_refused(shop: Application, options: tuple[str, ...]) -> None:
    assert look("runs", *options).exit_code == 2


@pytest.mark.parametrize(("command", "columns"), [("lag", 80), ("runs", 100), ("status", 80)])
def test_names_are_printed_whole(
    kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch, command: str, columns: int
) -> None:
    topic, run_id = (
        "orders-of-all-shops-of-the-northern-region-and-of-2026",
        f"scheduled__{'2026-01-01T' * 4}",
    )
    kafka.create_topic(topic)
    kafka.append(topic, b"v", b"k", timestamp_ms=kafka.clock.now_ms())
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream(topic).group_by_key().count(store="totals")
    Application(on=kafka, clock=kafka.clock, application_id="shop", topology=builder.build()).run(run_id)
    kafka.append(topic, b"v", b"k", timestamp_ms=kafka.clock.now_ms())
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = look(command).stdout
    for name in {"lag": [topic], "runs": [run_id], "status": [topic, run_id]}[command]:
        assert name in shown.split()
    assert max(map(len, shown.splitlines())) <= columns


def test_run_that_does_not_exist_is_an_error(shop: Application) -> None:
    result = look("runs", "--show", "r9")
    assert result.exit_code == 1
    assert "has no run 'r9'" in result.stderr


def test_lag_is_shown_in_a_sentence_and_by_topic(shop: Application) -> None:
    shown = lines(look("lag"))
    assert shown[3] == ["orders", "2023-11-15", "02:15:20", "1", "0", "2", "2"]
    notes = " ".join(word for words in shown for word in words)
    assert "Offsets that wait in inputs: 2; the last run began" in notes
    # The command goes by the clock of today, and the scene by its own.
    assert "usually one does within 1 h: is its DAG paused? (suspicion.quiet.times=3)" in notes
    found = json_of(look("lag", "--json"), "lag")
    assert (found["lag"], found["partitions"][0]["position"]) == (2, 81)


@pytest.mark.promise("inspect-writes-nothing")
def test_plan_is_shown_and_nothing_is_written(shop: Application, tmp_path: Path) -> None:
    assert isinstance(shop.on, InMemoryKafka)
    before = shop.on.admin().topic_names()
    text = words_of(look("plan"))
    assert "begin a new slice would be frozen reads at most 2 records, 1 task takes about 30 s" in text
    assert "orders 0 81 83 2" in text
    assert "totals shop-totals-changelog 1 " in text
    assert text.endswith("Nothing was written.")
    found = json_of(look("plan", str(tmp_path / "shop.py"), "--json"), "plan")
    assert (found["kind"], found["records"], found["expected"]["runs"]) == ("new", 2, 5)
    assert shop.on.admin().topic_names() == before


def test_refusal_is_no_error_of_the_command(shop: Application) -> None:
    assert isinstance(shop.on, InMemoryKafka)
    shop.on.admin().delete_topics(["shop-totals-changelog"])
    result = look("plan")
    assert result.exit_code == 0
    assert "DataLossError: changelog shop-totals-changelog is not the one" in result.stdout
    assert "What to do: " in result.stdout


def everything(*options: str) -> Result:
    return invoke("status", "--bootstrap-server", "in-memory:9092", *options)


def test_applications_are_listed_when_status_is_asked_for_none(
    shop: Application, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("KSTREAMS_APPLICATION_ID", raising=False)
    kafka.create_topic("other-runs")
    kafka.append("other-runs", b"no ledger", b"k")
    rows = [line for line in everything().stdout.splitlines() if line.startswith(" ")]
    assert ["shop", "idle", "2023-11-15", "02:15:50", "5", "1", "0"] in [row.split() for row in rows]
    assert ["other", "-", "-", "-", "-", "-"] in [row.split() for row in rows]
    assert max(map(len, rows)) <= 80
    text = words_of(everything())
    assert "Not looked at: other: " in text
    assert text.endswith("More of one: airflow-kstreams status --application-id ID")
    monkeypatch.setenv("KSTREAMS_APPLICATION_ID", "shop")
    assert "Application shop" in everything().stdout
    assert words_of(everything("--all")) == text
    found = json_of(everything("--all", "--json"), "status all")
    assert [each["application_id"] for each in found["applications"]] == ["other", "shop"]
    assert "goes with one application" in everything("--all", "--records").stderr


def test_list_is_a_sentence_when_nothing_has_run(
    kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KSTREAMS_APPLICATION_ID", raising=False)
    assert everything().stdout == "No application has begun a run here.\n"
    assert json_of(everything("--json"), "status all")["applications"] == []


def test_runs_are_judged_by_the_thresholds_that_they_began_with(
    shop: Application, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: kafka.clock.now_ms() / 1000 + 10 * HOUR_SECONDS)
    own = {"suspicion.records.times": 30, "suspicion.quiet.times": 20}
    dataclasses.replace(shop, settings={**shop.settings, **own}).run("r5")
    feed(kafka, 2)
    runs = json_of(look("runs", "--json"), "runs")["runs"]
    assert [run["run_id"] for run in runs if run["suspicions"]] == ["r4"], "r5 read 2, where 20 are usual"
    assert "Odd:" not in look("status").stdout
    # A look may be given others, and says so.
    given = look("runs", "--setting", "suspicion.records.times=4").stdout
    assert "r5: 2 records in, far fewer than the 20 of" in given
    assert given.count("(suspicion.records.times=4, as given)") == 2
    own["suspicion.quiet.times"] = 2
    dataclasses.replace(shop, settings={**shop.settings, **own}).run("r6")
    feed(kafka, 2)
    assert "is its DAG paused? (suspicion.quiet.times=2)" in words_of(look("status"))


def test_default_is_named_where_the_runs_thresholds_are_not_known() -> None:
    bounds = Bounds(settings=ApplicationSettings.parse("shop"), own=None)
    (odd,) = untaken(2, [9 * HOUR_MS, 3 * HOUR_MS, 2 * HOUR_MS, HOUR_MS, 0], 40 * HOUR_MS, bounds)
    assert odd_text(odd).endswith("(suspicion.quiet.times=3, its default)")


@pytest.mark.usefixtures("shop")
def test_status_says_what_is_odd_though_green(kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: kafka.clock.now_ms() / 1000 + 10 * HOUR_SECONDS)
    text = words_of(look("status"))
    assert "Odd: 1 record in, far fewer than the 20 of the middle one of the last 4 runs" in text
    assert "Odd: 2 offsets wait and no run has begun for 11 h, usually one does within 1 h" in text
    found = json_of(look("status", "--json"), "status")
    assert [each["rule"] for each in found["suspicions"]] == ["fewer", "untaken"]


def test_values_show_themselves_in_notebooks_as_the_commands_do(
    shop: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(shop.on, InMemoryKafka)
    for value, command in (
        (inspect.applications(shop.on), ("status", "--all")),
        (inspect.runs("shop", shop.on), ("runs",)),
        (inspect.run("shop", "r0", shop.on), ("runs", "--show", "r0")),
        (inspect.compare("shop", "r0", "r1", shop.on), ("runs", "--compare", "r0", "r1")),
        (inspect.lag("shop", shop.on), ("lag",)),
        (inspect.plan("shop", shop.on), ("plan",)),
    ):
        words = cells(value._repr_html_())
        printed = words_of(everything(*command[1:]) if command[0] == "status" else look(*command)).split()
        # A notebook has no width, so words that a terminal breaks are put together again.
        assert "".join(printed) == "".join(words).replace(" ", ""), command


def test_findings_show_all_that_the_command_prints_of_them(
    shop: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "_looks", lambda *_: [])  # they start processes
    assert isinstance(shop.on, InMemoryKafka)
    found = inspect.doctor("shop", shop.topology, shop.on)
    shown = cells(found._repr_html_())
    assert shown[1:6] == ["", "check", "code", "found", "what to do"]
    assert shown[6:] == [
        text
        for each in found.findings
        for text in (each.level.value, each.check, each.code, each.text, each.fix)
    ]
    assert any(each.fix for each in found.findings)


def cells(page: str) -> list[str]:
    """Return the texts of HTML, each title, cell and note."""
    texts = re.findall("<(?:b|th|td|p)(?: [^>]*)?>(.*?)</(?:b|th|td|p)>", page, re.DOTALL)
    return [html.unescape(text) for text in texts]


@pytest.mark.parametrize("command", ["runs", "lag", "plan"])
def test_unknown_application_is_one_error_in_json(kafka: InMemoryKafka, command: str) -> None:
    error = json_error_of(look(command, "--json"))
    assert (error["error"], error["exit_code"]) == ("ConfigError", 1)
    assert "there is no application 'shop' on this cluster" in error["cause"]
