"""The commands that an error prints, executed as a person would: as they stand, but for the address."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence

from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.testing import InMemoryKafka
from dev.servers.embedded import tool_command

_TOOLS = {
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
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


def accept_in_memory(error: KStreamsError, kafka: InMemoryKafka) -> list[list[str]]:
    """Do to a Kafka in memory what the commands that an error prints would do to a real one."""
    commands = printed_commands(error.fix)
    assert commands, error
    for tool, *arguments in commands:
        options = _options(arguments)
        if tool == "airflow-kstreams":
            assert arguments[0] == "reset"
            request = ResetRequest(
                application_id=options["--application-id"][0],
                input_topics=_topics(options, "--input-topics"),
                intermediate_topics=_topics(options, "--intermediate-topics"),
                internal_topics=_topics(options, "--internal-topics"),
                unread_topics=_topics(options, "--unread-topics"),
                delete_stop_offsets="--delete-stopoffsets" in options,
                force=True,
            )
            with ApplicationReset(kafka, request, clock=kafka.clock) as reset:
                reset.run()
        elif tool == "kafka-topics.sh" and "--delete" in options:
            kafka.admin().delete_topics(options["--topic"])
        elif tool == "kafka-topics.sh":
            assert "--create" in options
            kafka.create_topic(options["--topic"][0], partitions=int(options["--partitions"][0]))
        else:
            assert tool == "kafka-consumer-groups.sh"
            _reset_offsets(options, kafka)
    return commands


def other_way(error: KStreamsError) -> str:
    """Return the command of an error that gives a store up, with what it says to put in place of that."""
    said = r"((?:--in\S+ \S+ ?)+) in place of --internal-topics (\S+?)[:\s]"
    flags, changelog = re.findall(said, error.fix)[0]
    (command,) = (found for found in _COMMAND.findall(error.fix) if f"--internal-topics {changelog}" in found)
    return str(command).replace(f"--internal-topics {changelog}", flags)


def _topics(options: dict[str, list[str]], name: str) -> tuple[str, ...]:
    return tuple(topic for word in options.get(name, ()) for topic in word.split(","))


def _reset_offsets(options: dict[str, list[str]], kafka: InMemoryKafka) -> None:
    assert options.keys() >= {"--reset-offsets", "--execute", "--bootstrap-server"}
    partitions = [
        TopicPartition(topic, int(number))
        for topic, numbers in (word.split(":") for word in options["--topic"])
        for number in numbers.split(",")
    ]
    admin = kafka.admin()
    low, high = admin.start_offsets(partitions), admin.end_offsets(partitions, isolation="read_uncommitted")
    to = {"--to-earliest": low, "--to-latest": high}
    chosen = [to[name] for name in options if name in to]
    if not chosen:
        at = int(options["--to-offset"][0])
        chosen = [{tp: min(max(at, low[tp]), high[tp]) for tp in partitions}]
    reader = kafka.reader(group_id=options["--group"][0])
    reader.commit({tp: CommittedOffset(offset) for tp, offset in chosen[0].items()})
    reader.close()


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
