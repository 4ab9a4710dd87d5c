"""The commands that an error prints, executed as a person would: as they stand, but for the address."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile

from airflow_kstreams.batch.reset.acceptance import partitions_in
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.batch.reset.scenario import Scenario, scenario_of, to_offset
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.ports import TopicPartition, TopicSpec
from airflow_kstreams.streams.tables.table_port import TablesPort
from airflow_kstreams.testing import InMemoryKafka
from dev.servers.embedded import tool_command

_TOOLS = {
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}
_COMMAND = re.compile(r"(?:kafka-[a-z-]+\.sh|airflow-kstreams) [^;()\n]+")


def printed_commands(text: str) -> list[list[str]]:
    """Return the commands of a text, in order, as argument lists."""
    return [shlex.split(found) for found in _COMMAND.findall(text)]


def execute(command: Sequence[str], bootstrap: str) -> str:
    """Execute a command and return what it prints."""
    tool, *arguments = [bootstrap if word == "<broker>" else word for word in command]
    if tool == "airflow-kstreams":
        run = [sys.executable, "-m", "airflow_kstreams.cli", *arguments]
    else:
        run = tool_command(_TOOLS[tool], arguments)
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{run}: {done.stdout} {done.stderr}"
    assert "rror" not in done.stdout + done.stderr, f"{run}: {done.stdout} {done.stderr}"
    return done.stdout


def accept(error: KStreamsError, bootstrap: str) -> list[list[str]]:
    """Execute every command that an error prints, and return them."""
    commands = printed_commands(error.fix)
    assert commands, error
    for command in commands:
        execute(command, bootstrap)
    return commands


def accept_at(kafka: InMemoryKafka, to: Mapping[TopicPartition, int], application_id: str) -> None:
    """Have reading go on elsewhere, as ``airflow-kstreams reset --accept ... --to-offset`` does."""
    for tp, at in to.items():
        request = ResetRequest(
            application_id=application_id, accept=(tp,), scenario=to_offset(at), force=True
        )
        with ApplicationReset(kafka, request, clock=kafka.clock) as command:
            command.run()


def accept_in_memory(
    error: KStreamsError, kafka: InMemoryKafka, tables: TablesPort | None = None
) -> list[list[str]]:
    """Do to a Kafka in memory, and to tables, what the commands that an error prints do to real ones."""
    commands = printed_commands(error.fix)
    assert commands, error
    for tool, *arguments in commands:
        options = _options(arguments)
        if arguments[0] == "topics":
            _on_topics(kafka, arguments, options)
        elif tool == "airflow-kstreams":
            assert arguments[0] == "reset"
            request = ResetRequest(
                application_id=options["--application-id"][0],
                input_topics=_topics(options, "--input-topics"),
                intermediate_topics=_topics(options, "--intermediate-topics"),
                internal_topics=_topics(options, "--internal-topics"),
                unread_topics=_topics(options, "--unread-topics"),
                delete_stop_offsets="--delete-stopoffsets" in options,
                accept=partitions_in(options.get("--accept")),
                scenario=_scenario(options),
                force=True,
            )
            with ApplicationReset(kafka, request, clock=kafka.clock, tables=tables) as reset:
                reset.run()
        else:
            assert tool == "kafka-transactions.sh"
            if "abort" in arguments:
                _abort(kafka, options)
    return commands


def topics_of(command: Sequence[str]) -> list[str]:
    """Return the topics that a command ``airflow-kstreams topics`` names."""
    return [*takewhile(lambda word: not word.startswith("--"), command[3:])]


def _on_topics(kafka: InMemoryKafka, arguments: Sequence[str], options: dict[str, list[str]]) -> None:
    names, admin = topics_of(["airflow-kstreams", *arguments]), kafka.admin()
    counts = [int(count.replace("<count>", "1")) for count in options.get("--partitions", ())]
    if arguments[1] == "create":
        admin.create_topics([TopicSpec(name=name, partitions=counts[0]) for name in names])
    elif arguments[1] == "delete":
        admin.delete_topics(names)
    else:
        assert arguments[1] == "set"
        for name in names:
            admin.alter_topic(name, dict(each.split("=") for each in options.get("--config", ())))
            for count in counts:
                admin.create_partitions(name, count)


def other_way(error: KStreamsError) -> str:
    """Return the command of an error that gives a store up, with what it says to put in place of that."""
    said = r"(nothing|(?:--in\S+ \S+ ?)+) in place of --internal-topics (\S+?)[:\s]"
    flags, changelog = re.findall(said, error.fix)[0]
    (command,) = (found for found in _COMMAND.findall(error.fix) if f"--internal-topics {changelog}" in found)
    return str(command).replace(f"--internal-topics {changelog}", flags.removeprefix("nothing"))


def _abort(kafka: InMemoryKafka, options: dict[str, list[str]]) -> None:
    """Abort the transaction that begins at an offset; refuse an offset at which none begins."""
    at = TopicPartition(options["--topic"][0], int(options["--partition"][0]))
    (stable,), (high,) = (
        kafka.admin().end_offsets([at], isolation=each).values()
        for each in ("read_committed", "read_uncommitted")
    )
    assert stable < high, f"no transaction is open on {at}"
    assert int(options["--start-offset"][0]) == stable
    for each in kafka.hanging_transactions():
        kafka.time_out_transaction(each)
    # The markers follow.
    kafka.clock.sleep(1)


def _topics(options: dict[str, list[str]], name: str) -> tuple[str, ...]:
    return tuple(topic for word in options.get(name, ()) for topic in word.split(","))


def _scenario(options: dict[str, list[str]]) -> Scenario:
    names = ("--to-earliest", "--to-latest", "--to-offset", "--shift-by", "--from-file")
    return scenario_of({name: (options[name] or ["true"])[0] for name in names if name in options})


def _options(arguments: Sequence[str]) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    name = ""
    for word in arguments:
        if word.startswith("--"):
            name = word
            options.setdefault(name, [])
        elif name:
            options[name].append(word)
    return options
