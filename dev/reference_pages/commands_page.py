"""What the page of commands says: each command as its help has it, with its options, example and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from typer.main import get_command

from airflow_kstreams.cli.app import COMMANDS, app
from airflow_kstreams.cli.documents.by_command import DOCUMENTS
from dev.reference_pages.json_schemas import schema_file

_PROGRAM = "airflow-kstreams"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEntry:
    """A command, as Markdown.

    :param name: its words, without the program's name.
    :param group: heading of the help text under which it stands.
    :param usage: the command line.
    :param text: what it does.
    :param parameters: name and meaning of each argument and option.
    :param examples: whole command lines.
    :param page: page of ``docs/`` that describes its use.
    :param schema: file of the schema of its JSON; empty if it prints none.
    """

    name: str
    group: str
    usage: str
    text: str
    parameters: tuple[tuple[str, str], ...]
    examples: tuple[str, ...]
    page: str
    schema: str


def command_entries() -> list[CommandEntry]:
    """Return every command, in the order of the list of commands."""
    root: Any = get_command(app)
    with root.make_context(_PROGRAM, ["--help"], resilient_parsing=True) as context:
        return [
            _entry(one, words, name)
            for name in COMMANDS
            for words, one in _below(root.get_command(context, name), name)
        ]


def _below(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    """Yield a command with its words; of a group of commands those in it."""
    below = getattr(command, "commands", {})
    if not below:
        yield words, command
    for name, one in below.items():
        yield from _below(one, f"{words} {name}")


def _entry(command: Any, words: str, listed: str) -> CommandEntry:
    of_help = COMMANDS[listed]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    with command.make_context(words, [], resilient_parsing=True) as context:
        options = [
            record
            for each in command.params
            if each.param_type_name == "option" and (record := each.get_help_record(context)) is not None
        ]
    needed = [
        f"{each.opts[0]} {each.metavar}"
        for each in command.params
        if each.param_type_name == "option" and each.required
    ]
    named = [each.metavar if each.required else f"[{each.metavar.strip('[]')}]" for each in arguments]
    return CommandEntry(
        name=words,
        group=of_help.group,
        usage=" ".join([_PROGRAM, words, *named, *needed, "[OPTIONS]"]),
        text=_markdown(command.help),
        parameters=tuple(
            (f"`{_cell(name)}`", _cell(meaning))
            for name, meaning in [
                *((each.metavar.strip("[]"), each.help) for each in arguments),
                *options,
            ]
        ),
        examples=tuple(
            f"{_PROGRAM} {example}" for example in of_help.examples if f"{example} ".startswith(f"{words} ")
        ),
        page=of_help.page,
        schema=schema_file(words) if words in DOCUMENTS else "",
    )


def _markdown(text: str) -> str:
    paragraphs = (" ".join(each.split()) for each in text.split("\n\n"))
    return "\n\n".join(paragraph.replace("--", "\\--").replace("<", "\\<") for paragraph in paragraphs)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
