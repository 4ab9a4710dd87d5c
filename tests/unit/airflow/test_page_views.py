"""The pages' HTML, from made-up readings: text stays text whatever it is, values come onto no page, and each
state of an application says what it is and what to do.
"""

from __future__ import annotations

import enum
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from typer.testing import CliRunner

from airflow_kstreams import pages
from airflow_kstreams.cli.app import app as command_line
from airflow_kstreams.inspect import SeenRuns
from airflow_kstreams.pages.views import (
    ApplicationReadings,
    ApplicationRow,
    application_page,
    applications_page,
    comparison_page,
    message_page,
    plan_page,
    run_page,
)
from airflow_kstreams.pages.views.drawings.run_charts import COLUMNS
from airflow_kstreams.pages.views.troubles import commands_of
from tests.support.airflow.page_readings import FRAME, KEY, VALUE, MadeUp

STATIC = Path(pages.__file__).parent / "static"
#: In each hostile text, so that a test knows it again.
MARK = "kilroy"
HOSTILE = {
    "script": f"{MARK}</title></script><script>alert(1)</script>",
    "image": f"{MARK}<img src=x onerror=alert(1)>",
    "quotes": f"{MARK}\" onmouseover='alert(1)' x=`y` {{{{ 7*7 }}}} {{% raw %}}",
    "end of a cell": f"{MARK}</td></tr></table></svg></style>--><!--]]>",
    "javascript": f"javascript:alert('{MARK}')",
    "path": f"/../../..//evil.example/{MARK}?a=b&c#d%2e%2e\\",
    "direction": f"{MARK}\u202e\u2066gpj\u200f \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "unprintable": f"{MARK}\x00\x1b[2J\r\n\ud800\ufffe\x85",
    "long": MARK + "m" * 3_000,
}
_VOID = {"meta", "link", "input", "br"}
_ADDRESSES = {"href", "src", "action", "data-post", "formaction", "xlink:href"}


@dataclass(frozen=True)
class Element:
    tag: str
    attributes: dict[str, str]
    inside: tuple[str, ...]


class Page(HTMLParser):
    """A page as its elements and texts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}, tuple(self._open)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._open.remove(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def of(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]

    def with_attribute(self, name: str) -> list[str]:
        return [element.attributes[name] for element in self.elements if name in element.attributes]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    @property
    def shape(self) -> list[tuple[object, ...]]:
        """The page's elements without texts, and without the lines of a name in the picture."""
        return [
            (each.tag, *sorted(each.attributes), each.inside) for each in self.elements if each.tag != "tspan"
        ]


def application(made: MadeUp, **given: Any) -> str:
    read = ApplicationReadings(runs=made.seen_runs, lag=made.lag, letters=made.letters, last=made.in_full)
    return application_page(FRAME, made.app, replace(read, **given))


def always(text: str) -> Callable[[str], str]:
    return lambda _: text


def listed(*made: MadeUp) -> str:
    rows = [ApplicationRow(app=each.app, seen=each.application, lag=each.lag) for each in made]
    return applications_page(FRAME, rows)


PAGES: dict[str, Callable[[MadeUp], str]] = {
    "applications": lambda made: applications_page(
        FRAME,
        [
            ApplicationRow(app=replace(made.app, paused=True), seen=made.application, lag=made.lag),
            ApplicationRow(app=made.app, kept=made.kept("failed")),
        ],
        [made.told("note")],
    ),
    "application": lambda made: application(made, kept=[made.kept(made.told("odd")), made.kept("failed")]),
    "run": lambda made: run_page(FRAME, made.app, made.in_full, made.letters),
    "comparison": lambda made: comparison_page(FRAME, made.app, made.compared),
    "plan": lambda made: plan_page(FRAME, made.app, made.plan),
    "message": lambda made: message_page(FRAME, made.told("title"), made.told("text"), 404),
    "kept": lambda made: applications_page(replace(FRAME, kept=made.told("kept")), []),
}
STATES = ("finished", "under way", "failed", "unfinished", "taken back", "nothing new", "continuous")


def all_pages(made: MadeUp) -> Iterator[tuple[str, str]]:
    return ((name, page(made)) for name, page in PAGES.items())


def texts_of(value: object) -> Iterator[str]:
    """Yield the texts of a reading, but not the words that it is made of itself."""
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        yield value
    elif isinstance(value, msgspec.Struct):
        yield from texts_of([getattr(value, name) for name in value.__struct_fields__])
    elif is_dataclass(value) and not isinstance(value, type):
        yield from texts_of([getattr(value, each.name) for each in fields(value)])
    elif isinstance(value, dict):
        yield from texts_of([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts_of(each)


#: Words that the readings' types allow, and names of their own figures.
OWN_WORDS = {
    *STATES,
    *("capture", "driver", "fewer", "run", "read", "written", "dead-lettered", "refused", "iceberg", ""),
    *("freeze", "fence", "wait", "restore", "process", "commit", "finish", "records in", "seconds"),
    *("records_in", "records_out", "records_late", "parked", "note", VALUE),
    *(
        "success",
        "exception",
        "node",
        "message",
        "stacktrace",
        "purpose",
        "topic",
        "partition",
        "offset",
        "3",
        "4711",
    ),
    "own-header",
}


def test_each_text_of_the_made_up_readings_is_hostile() -> None:
    made = MadeUp(told=lambda text: text + HOSTILE["script"], state="failed")
    read = (made.app, made.application, made.seen_runs, made.lag, made.in_full, made.compared, made.plan)
    mild = {text for text in texts_of([*read, made.kept(), made.letters]) if MARK not in text}
    assert {text for text in mild if not text.startswith("__streams.errors.")} - OWN_WORDS == set()


@cache
def plain_shapes() -> dict[str, list[tuple[object, ...]]]:
    return {name: Page(text).shape for name, text in all_pages(MadeUp(state="failed", parked=3))}


@pytest.mark.parametrize("kind", HOSTILE)
def test_text_stays_text_when_it_is_hostile(kind: str) -> None:
    hostile = HOSTILE[kind]
    made = MadeUp(told=lambda text: text + hostile, state="failed", parked=3)
    for name, text in all_pages(made):
        page = Page(text.encode().decode())
        assert page.shape == plain_shapes()[name], name
        assert MARK in page.text
        assert all(line.isprintable() for part in page.texts for line in part.split("\n"))


@pytest.mark.parametrize("kind", ["javascript", "path"])
def test_address_stays_on_its_path_when_a_name_is_all_of_it(kind: str) -> None:
    made = MadeUp(told=always(HOSTILE[kind]), state="failed")
    for name, text in all_pages(made):
        page = Page(text)
        addresses = [value for attribute in _ADDRESSES for value in page.with_attribute(attribute)]
        assert addresses, name
        for address in addresses:
            assert address.startswith(("/kstreams/", "/dags/", "/api/v2/dags/", "#main")), name
            assert not re.search(r"[:\\<>\"'\s]|//|/\.\.?(/|$)", address), name
    named = [unquote(each) for each in Page(PAGES["run"](made)).with_attribute("href")]
    assert any(HOSTILE[kind] in address for address in named)


def test_address_leads_to_the_list_when_a_name_is_a_step_in_a_path() -> None:
    for dots in (".", ".."):
        page = Page(PAGES["run"](MadeUp(told=always(dots), state="failed")))
        addresses = {*page.with_attribute("href"), *page.with_attribute("data-post")}
        assert {each for each in addresses if "static" not in each} == {"/kstreams/", "#main"}


def test_addresses_of_airflow_begin_with_its_path() -> None:
    made, frame = MadeUp(state="failed"), replace(FRAME, airflow="/airflow", base="/airflow/kstreams")
    page = Page(run_page(frame, made.app, made.in_full))
    addresses = [*page.with_attribute("href"), *page.with_attribute("data-post")]
    assert all(each.startswith(("/airflow/", "#main")) for each in addresses)


def test_page_needs_neither_inline_script_nor_style_nor_another_host() -> None:
    for name, text in all_pages(MadeUp(state="under way", partitions=60)):
        page = Page(text)
        (script,) = page.of("script")
        assert script.attributes == {"src": "/kstreams/static/pages.js"}, name
        names = {attribute for element in page.elements for attribute in element.attributes}
        assert not {each for each in names if each.startswith("on")} | (names & {"style", "srcdoc"})
        assert not {element.tag for element in page.elements} & {"style", "iframe", "object", "base", "img"}


def test_static_files_are_small_and_name_no_host() -> None:
    files = [*STATIC.iterdir()]
    assert {file.name for file in files} == {"pages.css", "pages.js", "icon.svg", "icon-dark.svg"}
    assert sum(file.stat().st_size for file in files) < 100_000
    for file in files:
        # The name of SVG's elements, which only looks like an address.
        text = file.read_text(encoding="utf-8").replace(' xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(
            r"https?:|//[a-z]+\.|@import|innerHTML|outerHTML|insertAdjacent|eval\(|Function\(", text
        )


def test_values_keys_and_messages_of_letters_come_onto_no_page() -> None:
    for name, text in all_pages(MadeUp()):
        assert VALUE not in text, name
        assert KEY not in text, name
    text = Page(application(MadeUp())).text
    assert "airflow_kstreams.streams.errors.RecordError" in text
    assert "flights-3@4711" in text


def test_class_of_an_exception_is_not_shown_when_it_is_no_name_of_one() -> None:
    made = MadeUp(told=lambda text: f"{text} {VALUE}" if "Error" in text else text)
    text = Page(application(made, runs=None, last=None, lag=None)).text
    assert VALUE not in text
    assert "(no name of a class)" in text


def test_figures_of_a_result_are_shown_only_where_they_are_numbers() -> None:
    made = MadeUp()
    page = Page(applications_page(FRAME, [ApplicationRow(app=made.app, kept=made.kept())]))
    assert "41,000" in page.text
    assert VALUE not in page.text


@pytest.mark.parametrize("state", STATES)
def test_page_is_sound_for_who_cannot_see_it(state: str) -> None:
    made = MadeUp(state=state, partitions=60)  # type: ignore[arg-type]
    for name, text in all_pages(made):
        page = Page(text)
        ids = page.with_attribute("id")
        assert not [each for each, times in Counter(ids).items() if times > 1], name
        named = [each for attribute in ("aria-labelledby", "for") for each in page.with_attribute(attribute)]
        assert {part for each in named for part in each.split()} <= set(ids)
        assert {each.attributes["for"] for each in page.of("label")} == {
            each.attributes["id"] for each in page.of("select")
        }
        levels = [int(each.tag[1]) for each in page.elements if re.fullmatch("h[1-6]", each.tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(below - above <= 1 for above, below in pairwise(levels))
        assert len(page.of("caption")) == len(page.of("table"))
        assert all(each.attributes.get("scope") in ("col", "row") for each in page.of("th"))
        assert len(page.of("summary")) == len(page.of("details"))
        for drawing in page.of("svg"):
            hidden = drawing.attributes.get("aria-hidden") == "true"
            labelled = drawing.attributes.get("role") == "img" and "aria-labelledby" in drawing.attributes
            assert hidden != labelled


def test_page_stays_small_when_there_are_10_000_runs_and_1_000_partitions() -> None:
    text = application(MadeUp(state="under way", runs=10_000, partitions=1_000))
    page = Page(text)
    assert len(text.encode()) < 600_000
    assert len(page.elements) < 14_000
    columns = Counter(each.attributes["class"] for each in page.of("rect") if "class" in each.attributes)
    assert columns["hit"] <= 5 * COLUMNS
    assert len(page.of("option")) == 100


def test_page_does_not_grow_with_more_runs_or_partitions_than_it_shows() -> None:
    sizes = [
        len(Page(application(MadeUp(runs=runs, partitions=partitions))).elements)
        for runs, partitions in ((2_000, 1_000), (6_000, 3_000))
    ]
    assert abs(sizes[1] - sizes[0]) < 300


def test_all_partitions_of_a_topic_are_drawn_in_three_paths() -> None:
    page = Page(application(MadeUp(state="under way", partitions=1_000)))
    (flights, weather) = (each for each in page.of("svg") if "strip" in each.attributes.get("class", ""))
    assert (flights.attributes["viewbox"], weather.attributes["viewbox"]) == ("0 0 800 60", "0 0 200 60")
    paths = [each.attributes["d"] for each in page.of("path") if each.attributes.get("class") == "left"]
    assert [path.count("M") for path in paths] == [800, 200]


def test_next_page_begins_behind_the_last_finished_run_of_the_table() -> None:
    page = Page(application(MadeUp(runs=200)))
    (older,) = (each for each in page.with_attribute("href") if "before=" in each)
    assert older == "/kstreams/applications/flights_hourly/flight-delays?before=scheduled__00150"
    assert "before=scheduled__00000" in application(MadeUp(runs=20))


def test_bars_go_from_start_over_committed_to_stop_and_what_waits() -> None:
    page = Page(application(MadeUp(state="under way", partitions=2), letters=None))
    bars = [each.attributes for each in page.of("rect") if each.inside[-2:] == ("td", "svg")]
    # Of partition 1: from 1,000 over 1,097 to 1,600, and to 1,653 behind it. Of partition 0: 1,000 and 1,600.
    assert [(each["class"], each["x"], each["width"]) for each in bars] == [
        ("left", "0.00", "100.00"),
        ("done", "0.00", "14.85"),
        ("left", "14.85", "77.03"),
        ("waiting", "91.88", "8.12"),
    ]


def test_bar_is_the_lag_beside_the_largest_when_no_run_is_under_way() -> None:
    page = Page(application(MadeUp(partitions=2), letters=None))
    bars = [each.attributes for each in page.of("rect") if each.inside[-2:] == ("td", "svg")]
    assert [(each["class"], each["width"]) for each in bars] == [("waiting", "100.00"), ("waiting", "91.88")]


def test_empty_runs_are_hollow_and_failed_ones_crossed() -> None:
    page = Page(application(MadeUp(runs=12)))
    kinds = Counter(each.attributes.get("class", "") for each in (*page.of("rect"), *page.of("path")))
    # Runs 3 and 10 are empty, and run 5 has failed, in each of the four charts that have figures.
    assert (kinds["hit"], kinds["hollow"], kinds["cross"]) == (48, 8, 4)


def test_counts_stand_at_the_edges_of_the_topology() -> None:
    page = Page(run_page(FRAME, MadeUp().app, MadeUp().in_full))
    assert [each.inside[-1] for each in page.of("text") if each.attributes["class"] == "count"] == ["svg"] * 5
    assert "Topology of run scheduled__00029, with records by topic" in page.text
    assert "subtopology 1 flights-checked read 40,000" in page.text


def test_topology_is_a_table_only_when_it_cannot_be_drawn() -> None:
    found = MadeUp().in_full
    wide = tuple(
        msgspec.structs.replace(found.subtopologies[0], id=number, reads=(f"t{number}",), writes=())
        for number in range(70)
    )
    circle = (msgspec.structs.replace(found.subtopologies[0], reads=("a",), writes=("a",)),)
    for subtopologies in (wide, circle):
        page = Page(
            run_page(FRAME, MadeUp().app, msgspec.structs.replace(found, subtopologies=subtopologies))
        )
        assert "topology-title" not in page.with_attribute("id")
        assert "flows" in page.with_attribute("id")


def states_of(page: Page) -> list[str]:
    return [
        each.attributes["class"] for each in page.of("span") if "state" in each.attributes.get("class", "")
    ]


def test_failed_run_says_why_and_what_to_do_and_can_be_cleared() -> None:
    made = MadeUp(state="failed")
    for text in (application(made), run_page(FRAME, made.app, made.in_full)):
        page = Page(text)
        assert states_of(page)[0] == "state failed"
        assert made.failure.in_one_line in page.text
        assert f"What to do: {made.failure.remedy}" in page.text
        address = "/api/v2/dags/flights_hourly/dagRuns/scheduled__00029/clear"
        assert address in page.with_attribute("data-post")
        assert '{"dry_run": false, "only_failed": true}' in page.with_attribute("data-body")
    assert "Run scheduled__00029 has failed." in Page(listed(made)).text


def test_run_of_another_dag_is_not_cleared_from_here() -> None:
    made = MadeUp(state="failed")
    app = replace(made.app, dag_id="another")
    assert not [
        each
        for each in Page(run_page(FRAME, app, made.in_full)).with_attribute("data-post")
        if each.endswith("/clear")
    ]


def test_run_whose_begin_failed_is_cleared_in_the_dag_of_the_page() -> None:
    made = MadeUp(state="failed")
    refused = msgspec.structs.replace(made.seen_run(29), dag_id="", generation=0)
    page = Page(run_page(FRAME, made.app, msgspec.structs.replace(made.in_full, run=refused)))
    assert "/api/v2/dags/flights_hourly/dagRuns/scheduled__00029/clear" in page.with_attribute("data-post")


def test_page_is_read_again_only_while_a_run_is_under_way() -> None:
    for made, times in ((MadeUp(state="under way"), ["5"]), (MadeUp(), [])):
        for text in (listed(made), application(made), run_page(FRAME, made.app, made.in_full)):
            assert Page(text).with_attribute("data-refresh") == times


def test_new_application_says_that_it_has_no_run_and_can_be_started() -> None:
    made = MadeUp(runs=0)
    none = SeenRuns(application_id="flight-delays", finished=0, runs=(), looked_at=0)
    page = Page(application_page(FRAME, made.app, ApplicationReadings(runs=none)))
    assert states_of(page) == ["state empty"]
    assert "No run yet. What to do: Trigger the DAG." in page.text
    assert "/api/v2/dags/flights_hourly/dagRuns" in page.with_attribute("data-post")
    rows = [ApplicationRow(app=made.app)]
    assert "no run yet" in Page(applications_page(FRAME, rows)).text
    # Where Kafka gave no answer, nothing says so.
    kept = replace(FRAME, kept="Kafka does not answer.")
    assert "no run yet" not in Page(applications_page(kept, rows)).text


def test_parked_and_superseded_runs_say_so() -> None:
    made = MadeUp(parked=4)
    page = Page(run_page(FRAME, made.app, made.in_full))
    assert states_of(page)[0] == "state waiting"
    assert "finished, parked" in page.text
    assert "4 parked records: runs to come try them again when they are due." in page.text
    assert "an attempt was taken over" in page.text
    assert "Parked records that wait: 4." in Page(listed(made)).text


def test_kept_results_are_shown_and_said_to_be_when_kafka_is_gone() -> None:
    made, frame = MadeUp(), replace(FRAME, kept="Kafka did not answer within 10 s.")
    read = ApplicationReadings(kept=[made.kept("failed"), made.kept()])
    page = Page(application_page(frame, made.app, read))
    assert "Kafka did not answer within 10 s." in page.text
    assert states_of(page)[0] == "state failed"
    assert "Task process of DAG run scheduled__00003 has failed." in page.text
    assert "Runs as Airflow keeps them" in page.text
    assert page.text.count("Not read.") == 3
    assert page.with_attribute("data-refresh") == []


def test_commands_are_quoted_when_a_name_has_signs_of_a_shell() -> None:
    made = MadeUp(told=lambda text: f"{text}; rm -rf $HOME")
    page = Page(application(made))
    assert "--application-id 'flight-delays; rm -rf $HOME'" in page.text
    assert "--input-topics 'flights; rm -rf $HOME','weather; rm -rf $HOME'" in page.text


def test_commands_to_copy_are_ones_that_the_command_line_has() -> None:
    made = MadeUp()
    commands = commands_of(made.app, made.lag)
    assert len(commands) == 3
    for each in commands:
        program, *words = shlex.split(each.command)
        place = next(number for number, word in enumerate(words) if word.startswith("--"))
        result = CliRunner().invoke(command_line, [*words[:place], "--help"], env={"COLUMNS": "200"})
        assert (program, result.exit_code) == ("airflow-kstreams", 0)
        assert [word for word in words if word.startswith("--") and word not in result.stdout] == []


def test_plan_says_what_would_refuse_the_next_run() -> None:
    made = MadeUp()
    page = Page(plan_page(FRAME, made.app, made.plan))
    assert made.failure.in_one_line in page.text
    assert "the begin would be refused" in page.text
    assert "Nothing was written." in page.text


def test_compared_runs_stand_beside_each_other_with_their_change() -> None:
    page = Page(comparison_page(FRAME, MadeUp().app, MadeUp().compared))
    assert "records in 41,000 1,200 -97%" in page.text
    assert "They ran different topologies" in page.text
