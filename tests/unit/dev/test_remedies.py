"""Every remedy that the package prints is followed by a test."""

from __future__ import annotations

import ast
import re

import pytest

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support import remedies
from tests.support.remedies import meant, walks


def test_every_remedy_is_walked() -> None:
    """A test with ``pytest.mark.remedy`` follows it, from the fault to a right result."""
    known = {remedy.name for remedy in remedies.remedies()}
    assert known - {remedy.name for name, _ in walks() for remedy in meant(name)} == set()


def test_walk_names_one_remedy() -> None:
    wrong = {walk: [remedy.name for remedy in found] for walk in walks() if len(found := meant(walk[0])) != 1}
    assert wrong == {}


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("def f():\n    raise E('cause', fix='mend it')", ["m.f: mend it"]),
        ("class C:\n    def f(self):\n        raise E(fix=f'to {1}: ' + more)", ["m.C.f: to {}: {more}"]),
        ("def f(x):\n    raise E(fix='one' if x else 'two')", ["m.f: one", "m.f: two"]),
        ("def f(fix):\n    raise E(fix=fix)", []),
        ("def f(*, fix: str = 'mend it'):\n    raise E(fix=fix)", ["m.f: mend it"]),
        ("def f():\n    fix = 'one'\n    fix += ', two'", ["m.f: , two", "m.f: one"]),
        ("def f():\n    cause, fix = 'broken', 'mend it'", ["m.f: mend it"]),
        ("def f():\n    cause, fix = explain(2)", ["m.f: {explain}"]),
        ("def say(what, fix):\n    pass\ndef f():\n    say('broken', 'mend it')", ["m.f: mend it"]),
        ("def f(error):\n    raise E(fix=error.fix)", []),
        ("def f(error):\n    raise E('cause')", []),
        ("def f(report):\n    raise E('cause', fix=str(report.get('fix', '')))", []),
        ("def f(x):\n    log.warning('%s is small: raise it to %d', x, 5)", ["m.f: raise it to {}"]),
        (
            "def f(x):\n    log.warning('%s; a function must return it', x)",
            ["m.f: a function must return it"],
        ),
        ("def f(x):\n    log.warning('looking failed, trying again: %s', x)", []),
    ],
)
def test_remedies_are_read_from_the_source(source: str, texts: list[str]) -> None:
    assert [f"{each.place}: {each.text}" for each in remedies.printed_by([("m", ast.parse(source))])] == texts


def test_remedies_of_the_package_are_found() -> None:
    modules = {remedy.place.partition(".")[0] for remedy in remedies.remedies()}
    assert {"left_unread", "topology_builder", "topic_checks", "kafka"} - modules == set()


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("m.f", True),
        ("m.f: begin it again", True),
        ("m.f: begin {} again", True),
        ("m.f: end it", False),
        ("m.g", False),
        ("m.explain: begin it again", True),
        ("m.explain: {answer}", False),
        ("other.explain: begin it again", False),
    ],
)
def test_mark_asks_for_the_text_from_its_function(name: str, printed: bool) -> None:
    assert remedies.is_printed(name, "begin it again", {"m.f", "m.E.__init__"}) is printed


@pytest.mark.remedy("settings._checked: {nearest}")
def test_setting_that_was_misspelt_is_taken_as_the_refusal_writes_it() -> None:
    with pytest.raises(ConfigError) as refused:
        ApplicationSettings.parse("app", {"commit.every.record": 7})
    (name,) = re.findall(r"did you mean '(.*)'\?", refused.value.fix)
    assert ApplicationSettings.parse("app", {name: 7}).commit_every_records == 7
