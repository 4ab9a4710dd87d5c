from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from airflow_kstreams.cli.app import app
from tests.support.command_line import json_of

pytestmark = pytest.mark.promise("each-missing-acl-is-named", "catch-ups-need-what-is-listed")

APPLICATION = """
from airflow_kstreams.streams import KStreamBuilder, serdes

def topology():
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    words = builder.stream("words").through("checked-words")
    words.group_by(lambda _, word: word[0], name="letters").count(store="counts").to_stream().send_to(
        "letter-counts", value_serde=serdes.int64()
    )
    return builder.build()
"""


@pytest.fixture
def application(tmp_path: Path) -> str:
    path = tmp_path / "letters.py"
    path.write_text(APPLICATION)
    return str(path)


def acls(application: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["acls", application, "--application-id", "letters", *options])


def rows(result: Result) -> set[tuple[str, ...]]:
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()[4:]
    return {tuple(line.split()[:3]) for line in lines if line[:2].strip()}


RUN = {
    ("Read", "topic", "words"),
    ("Read", "topic", "checked-words"),
    ("Write", "topic", "checked-words"),
    ("Write", "topic", "letter-counts"),
    *(("Create", "topic", f"letters-{name}") for name in ("letters-repartition", "counts-changelog")),
    *(("Read", "topic", f"letters-{name}") for name in ("letters-repartition", "counts-changelog")),
    *(("Write", "topic", f"letters-{name}") for name in ("letters-repartition", "counts-changelog")),
    ("Delete", "topic", "letters-letters-repartition"),
    *(
        (each, "topic", f"letters-{name}")
        for each in ("Create", "Read", "Write")
        for name in ("metadata", "runs")
    ),
    *(
        ("DescribeConfigs", "topic", f"letters-{name}")
        for name in ("letters-repartition", "counts-changelog", "metadata", "runs")
    ),
    *(("DescribeConfigs", "topic", name) for name in ("words", "checked-words", "letter-counts")),
    ("Read", "group", "letters"),
    ("Read", "group", "letters-catchup"),
    ("Write", "transactional-id", "letters-*"),
}


def test_list_names_each_operation_once_when_runs_are_asked_for(application: str) -> None:
    result = acls(application)
    assert rows(result) == RUN
    assert result.stdout.splitlines()[2].split() == ["operation", "resource", "name", "serves", "for"]


def test_list_follows_the_settings_when_dead_letters_and_local_state_are_on(application: str) -> None:
    dead = ("--setting", "processing.exception.handler=dead-letter")
    own = {(each, "topic", "letters-dead-letter") for each in ("Create", "Write", "DescribeConfigs")}
    assert rows(acls(application, *dead)) == RUN | own
    named = rows(acls(application, *dead, "--setting", "errors.dead.letter.queue.topic.name=dead"))
    assert named == RUN | {("Write", "topic", "dead"), ("DescribeConfigs", "topic", "dead")}
    kept = acls(application, "--setting", "state.dir=/state")
    assert rows(kept) == RUN
    optional = "optional: without it begin does not check the settings of internal topics"
    assert optional in " ".join(kept.stdout.split())
    assert "and stores are replayed from their changelogs" in kept.stdout


def test_list_has_the_ledger_of_the_live_application_when_runs_are_a_backfills(application: str) -> None:
    chosen = ("autostop.at=interval", "backfill.of=live")
    backfill = acls(application, *(word for each in chosen for word in ("--setting", each)))
    assert rows(backfill) == RUN | {("Read", "topic", "live-runs")}
    assert "optional: without it a run warns that it may lack records" in " ".join(backfill.stdout.split())


def test_list_grows_when_the_user_is_to_do_more_than_run(application: str) -> None:
    more = rows(acls(application, "--for", "run", "--for", "reset")) - RUN
    assert more == {("Delete", "topic", "letters-counts-changelog")}
    assert rows(acls(application, "--for", "reset")) == {
        *(("Read", "topic", name) for name in ("words", "checked-words")),
        ("Describe", "topic", "letter-counts"),
        ("Delete", "topic", "letters-letters-repartition"),
        ("Delete", "topic", "letters-counts-changelog"),
        *((each, "topic", "letters-metadata") for each in ("Create", "Read", "Write")),
        *((each, "topic", "letters-runs") for each in ("Read", "Write")),
        ("Read", "group", "letters"),
        ("Write", "transactional-id", "letters-*"),
    }
    watching = rows(acls(application, "--for", "watch"))
    assert watching == {
        ("Read", "topic", "letters-metadata"),
        ("Read", "topic", "letters-runs"),
        ("Read", "topic", "words"),
        ("Describe", "topic", "checked-words"),
        ("Describe", "topic", "letters-letters-repartition"),
        ("Describe", "group", "letters"),
        ("Describe", "topic", "letters-counts-changelog"),
        ("Describe", "group", "letters-catchup"),
    }
    assert rows(acls(application, "--for", "state")) == {
        ("Read", "topic", "letters-metadata"),
        ("Read", "topic", "letters-runs"),
        ("Read", "topic", "letters-counts-changelog"),
    }
    assert rows(acls(application, "--for", "replay")) == {
        ("Read", "topic", "letters-metadata"),
        ("Read", "topic", "letters-runs"),
        ("Read", "topic", "letters-dead-letter"),
        ("Create", "topic", "letters-dead-letter-replays"),
        ("Read", "topic", "letters-dead-letter-replays"),
        ("Write", "topic", "letters-dead-letter-replays"),
        ("Write", "topic", "words"),
        ("Write", "topic", "checked-words"),
        ("Write", "topic", "letters-letters-repartition"),
        ("Read", "group", "letters-dead-letter-replay"),
        ("Write", "transactional-id", "letters-dead-letter-replay"),
    }
    assert rows(acls(application, "--for", "expand")) == {
        ("Read", "topic", "letters-metadata"),
        ("Read", "topic", "letters-runs"),
        ("Describe", "topic", "letters-letters-repartition"),
        ("Describe", "topic", "letters-counts-changelog"),
        ("Describe", "topic", "letter-counts"),
        ("Describe", "group", "letters"),
        ("Alter", "topic", "words"),
        ("Alter", "topic", "checked-words"),
    }
    assert rows(acls(application, "--for", "expand-processors")) == {
        ("Read", "topic", "letters-metadata"),
        ("Read", "topic", "letters-runs"),
        *(("Describe", "topic", name) for name in ("words", "checked-words", "letters-letters-repartition")),
        *(
            (each, "topic", "letters-counts-changelog")
            for each in ("Read", "Write", "Alter", "DescribeConfigs")
        ),
        ("Describe", "group", "letters"),
        ("Read", "group", "letters-catchup"),
        ("Write", "transactional-id", "letters-catchup-*"),
    }
    assert rows(acls(application, "--for", "expand-abort")) == {
        ("Read", "topic", "letters-metadata"),
        *((each, "topic", "letters-runs") for each in ("Read", "Write")),
        *((each, "topic", "letters-counts-changelog") for each in ("Read", "Write", "DescribeConfigs")),
        ("Read", "group", "letters-catchup"),
        ("Write", "transactional-id", "letters-*"),
    }
    assert rows(acls(application, "--for", "follow")) == {
        ("Read", "topic", "letters-runs"),
        ("Read", "group", "letters-finished-runs-*"),
    }
    assert rows(acls(application, "--for", "explore")) == {
        ("Read", "topic", "words"),
        *(("Describe", "topic", name) for name in ("checked-words", "letter-counts")),
    }
    assert rows(acls(application, "--for", "continuous")) - RUN == {("Delete", "topic", "letters-metadata")}
    assert ("DescribeConfigs", "cluster") in {row[:2] for row in rows(acls(application, "--for", "doctor"))}


@pytest.mark.promise("each-acl-serves-what-it-says")
def test_line_says_all_that_it_serves_when_it_includes_another_one(application: str) -> None:
    # Who may read the group may describe it; that some work goes on without it does not help the other.
    both = acls(application, "--for", "watch", "--for", "run", "--for", "expand-processors")
    lines = [line.split() for line in both.stdout.splitlines()]
    of_group = [line for line in lines if line[1:3] == ["group", "letters"]]
    assert [line[0] for line in of_group] == ["Read"]
    assert "run, expand-processors, watch" in " ".join(of_group[0])
    assert [line[0] for line in lines if line[1:3] == ["group", "letters-catchup"]] == ["Read"]
    text = " ".join(both.stdout.split())
    assert "committed offsets: all but RunFinishedSensor" in text
    assert rows(both) >= RUN


def test_commands_give_the_same_permissions_when_printed(application: str) -> None:
    result = acls(
        application, "--format", "commands", "--principal", "User:o'hara", "--bootstrap-server", "k:9092"
    )
    given = set()
    for line in result.stdout.splitlines():
        words = shlex.split(line)
        assert words[:6] == [
            "kafka-acls.sh",
            "--bootstrap-server",
            "k:9092",
            "--add",
            "--allow-principal",
            "User:o'hara",
        ]
        options = list(zip(words[6::2], words[7::2], strict=True))
        ((resource, name),) = (
            pair for pair in options if pair[0].removeprefix("--") in ("topic", "group", "transactional-id")
        )
        star = "*" if ("--resource-pattern-type", "prefixed") in options else ""
        given |= {
            (value, resource.removeprefix("--"), name + star)
            for option, value in options
            if option == "--operation"
        }
    assert given == RUN


@pytest.mark.remedy("acls.acls")
def test_user_is_taken_when_its_type_is_written_as_the_error_says(application: str) -> None:
    refused = acls(application, "--principal", "orders", "--format", "commands")
    assert refused.exit_code != 0
    assert "write --principal User:orders" in " ".join(refused.output.split())
    told = acls(application, "--principal", "User:orders", "--format", "commands")
    assert told.exit_code == 0
    assert "--allow-principal User:orders" in told.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--principal", "orders"), "User:orders"),
        (("--setting", "x"), "NAME=VALUE"),
        (("--setting", "x=1"), "unknown"),
    ],
)
def test_command_line_is_refused_when_it_is_wrong(
    application: str, options: tuple[str, ...], said: str
) -> None:
    result = acls(application, *options)
    assert result.exit_code != 0
    assert said in result.output


def test_json_holds_the_lines_of_the_table(application: str) -> None:
    document = json_of(acls(application, "--json"), "acls")
    listed = {
        (each["operation"], each["resource"], each["name"] + "*" * each["prefixed"])
        for each in document["acls"]
    }
    assert listed == rows(acls(application))
    assert {work for each in document["acls"] for work in each["serves"]} == {"run"}
