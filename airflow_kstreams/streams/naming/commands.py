"""Makes what messages tell a user to type: commands that reset, expand or resume, settings."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

#: A step of a record's way that has an error handler, ``<step>.exception.handler``.
FailingStep = Literal["deserialization", "processing", "production"]


def reset_command(application_id: str, *flags: str) -> str:
    """Return the command line of a reset.

    :param flags: options of the command, e.g. ``--to-latest``.

    >>> reset_command("orders", "--to-latest")
    'airflow-kstreams reset --bootstrap-server <broker> --application-id orders --to-latest'
    """
    command = ("airflow-kstreams reset --bootstrap-server <broker> --application-id", application_id, *flags)
    return " ".join(filter(None, command))


def leaving_out(step: FailingStep, *, skip: bool = True) -> str:
    """Return the setting that leaves failing records out, with the arguments that take it.

    :param step: the step that fails for them, whose handler the setting is.
    :param skip: whether the handler may also skip them.

    >>> leaving_out("processing")  # doctest: +ELLIPSIS
    'leave such records out: settings={"processing.exception.handler": "dead-letter"} (or "skip") of ...'
    """
    handler, other = f"{step}.exception.handler", ' (or "skip")' if skip else ""
    return (
        f'leave such records out: settings={{"{handler}": "dead-letter"}}{other} of the operators, '
        f"--setting {handler}=dead-letter of a command"
    )


def create_topics_command(topics: Iterable[str], partitions: int | str = "<count>") -> str:
    """Return the command that creates topics.

    >>> create_topics_command(["orders", "sales"], 3)
    'airflow-kstreams topics create orders sales --bootstrap-server <broker> --partitions 3'
    """
    return f"{_topics_command('create', topics)} --partitions {partitions}"


def set_topic_command(topic: str, settings: Mapping[str, str]) -> str:
    """Return the command that changes a topic's settings.

    >>> set_topic_command("orders", {"retention.ms": "-1"})
    'airflow-kstreams topics set orders --bootstrap-server <broker> --config retention.ms=-1'
    """
    wanted = (f" --config {name}={value}" for name, value in sorted(settings.items()))
    return f"{_topics_command('set', [topic])}{''.join(wanted)}"


def grow_topic_command(topic: str) -> str:
    """Return the command that gives a topic more partitions, whatever reads it.

    >>> grow_topic_command("orders")
    'airflow-kstreams topics set orders --bootstrap-server <broker> --partitions <count>'
    """
    return f"{_topics_command('set', [topic])} --partitions <count>"


def delete_topic_command(topic: str) -> str:
    """Return the command that deletes a topic.

    >>> delete_topic_command("orders")
    'airflow-kstreams topics delete orders --bootstrap-server <broker>'
    """
    return _topics_command("delete", [topic])


def _topics_command(verb: str, topics: Iterable[str]) -> str:
    return f"airflow-kstreams topics {verb} {' '.join(topics)} --bootstrap-server <broker>"


def start_over_flags(inputs: Collection[str], between: Collection[str]) -> str:
    """Return the options of a reset after which everything is processed again, with empty state.

    :param inputs: the application's input topics.
    :param between: the user's own topics between subtopologies, whose records come from the inputs.

    >>> start_over_flags(["sales", "orders"], ["checked"])
    '--input-topics orders,sales --intermediate-topics checked'
    """
    named = {"--input-topics": inputs, "--intermediate-topics": between}
    return " ".join(f"{flag} {','.join(sorted(topics))}" for flag, topics in named.items() if topics)


def drop_slice_command(application_id: str) -> str:
    """Return the command that drops an unfinished slice, and nothing else.

    >>> drop_slice_command("orders")
    'airflow-kstreams reset --bootstrap-server <broker> --application-id orders --delete-stopoffsets'
    """
    return reset_command(application_id, "--delete-stopoffsets")


def repair_ledger_command(application_id: str) -> str:
    """Return the command that writes a ledger anew from what can be read of it.

    >>> repair_ledger_command("orders")
    'airflow-kstreams reset --bootstrap-server <broker> --application-id orders --repair-ledger'
    """
    return reset_command(application_id, "--repair-ledger")


def accept_command(application_id: str, partitions: Iterable[tuple[str, int]], scenario: str) -> str:
    """Return the command that moves the offset from which some partitions are read, and changes nothing else.

    :param partitions: (topic, partition number) of each partition.
    :param scenario: ``--to-earliest``, ``--to-latest`` or ``--to-offset <offset>``.

    >>> accept_command("orders", [("in", 0), ("in", 2)], "--to-earliest")
    'airflow-kstreams reset --bootstrap-server <broker> --application-id orders --accept in:0,2 --to-earliest'
    """
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(set(partitions)):
        numbers.setdefault(topic, []).append(number)
    named = [f"--accept {topic}:{','.join(map(str, found))}" for topic, found in numbers.items()]
    return reset_command(application_id, *named, scenario)


def give_up_command(application_id: str, changelogs: Iterable[str], *, drop_slice: bool = False) -> str:
    """Return the command that deletes changelogs, so that their stores begin empty, and nothing else.

    :param changelogs: names of changelogs, existing or not.
    :param drop_slice: True to delete an unfinished slice, too.

    >>> give_up_command("orders", ["orders-totals-changelog"])  # doctest: +ELLIPSIS
    'airflow-kstreams reset ... --application-id orders --internal-topics orders-totals-changelog'
    """
    flags = ("--internal-topics", ",".join(sorted(changelogs)))
    return reset_command(application_id, *flags, *(["--delete-stopoffsets"] if drop_slice else []))


def expand_command(application_id: str, subtopology: int, processors: int) -> str:
    """Return the command that gives a subtopology more processors, or goes on with that.

    >>> expand_command("orders", 1, 6)  # doctest: +ELLIPSIS
    'airflow-kstreams expand processors ... --application-id orders --subtopology 1 --to 6'
    """
    return (
        f"airflow-kstreams expand processors --bootstrap-server <broker> --application-id {application_id} "
        f"--subtopology {subtopology} --to {processors}"
    )


def abort_command(application_id: str) -> str:
    """Return the command that gives up the expansions that are under way.

    >>> abort_command("orders")
    'airflow-kstreams expand abort --bootstrap-server <broker> --application-id orders'
    """
    return f"airflow-kstreams expand abort --bootstrap-server <broker> --application-id {application_id}"


def resume_command(application_id: str, run_id: str, *, dag_id: str, continuous: bool) -> str:
    """Return the command that goes on with a run: by Airflow if a DAG started it, else by hand.

    :param dag_id: the DAG; empty if none.
    :param continuous: whether it is a run without an end.

    >>> resume_command("orders", "scheduled__1", dag_id="orders_hourly", continuous=False)
    'airflow dags clear orders_hourly --run-id scheduled__1 --only-failed'
    >>> resume_command("orders", "manual__1", dag_id="", continuous=False)  # doctest: +ELLIPSIS
    'airflow-kstreams run <application file> ... --application-id orders --run-id manual__1'
    """
    if dag_id:
        return f"airflow dags clear {shlex.quote(dag_id)} --run-id {shlex.quote(run_id)} --only-failed"
    start, broker = (
        ("python", "--bootstrap-servers") if continuous else ("airflow-kstreams run", "--bootstrap-server")
    )
    return (
        f"{start} <application file> {broker} <broker> --application-id {application_id} "
        f"--run-id {shlex.quote(run_id)}"
    )
