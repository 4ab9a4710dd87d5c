"""The package's rooms stay walkable: few modules in a folder, one name for one thing, sentences on top."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import airflow_kstreams

PACKAGE = Path(airflow_kstreams.__file__).parent
ROOT = Path(__file__).parents[2]
MOST_MODULES = 16
#: A file name may stand in several places where it plays the same part in each: implementations of a port.
PORTS = {"admin", "clock", "cluster", "reader", "writer"}
#: A command, or an Airflow operator, may be called as what it runs.
COMMANDS = {"cli/commands", "cli/commands/first_steps", "operators"}
#: What a module does is said by a sentence, not by a clause.
CLAUSES = ("What ", "Which ", "How ", "Where ", "Whether ", "Who ", "Whose ", "When ")


def modules() -> Iterator[Path]:
    return (file for file in sorted(PACKAGE.rglob("*.py")) if not file.name.startswith("__"))


def test_a_reader_sees_a_folder_at_once_when_it_is_opened() -> None:
    counts: dict[Path, int] = defaultdict(int)
    for module in modules():
        counts[module.parent] += 1
    full = {str(room.relative_to(PACKAGE)): count for room, count in counts.items() if count > MOST_MODULES}

    assert not full, f"cut these rooms, or merge what is read together: {full}"


def test_a_file_name_says_which_file_when_it_is_read() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for module in modules():
        places[module.stem].add(str(module.parent.relative_to(PACKAGE)))
    doubled = {
        name: sorted(rooms)
        for name, rooms in places.items()
        if name not in PORTS and len(rooms - COMMANDS) + bool(rooms & COMMANDS) > 1 + bool(rooms & COMMANDS)
    }

    assert not doubled


def test_a_class_name_says_which_class_when_it_is_read() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        for node in ast.parse(module.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(f"{module.relative_to(PACKAGE)}:{node.lineno}")

    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_class_names_are_not_the_same_words_in_another_order_when_they_are_read() -> None:
    spelt: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for module in modules():
        for node in ast.parse(module.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                words = [word.lower().rstrip("s") for word in re.findall("[A-Z][^A-Z]*", node.name)]
                spelt[tuple(sorted(words))].add(" ".join(words))

    assert not [orders for orders in spelt.values() if len(orders) > 1]


def test_a_module_says_in_a_sentence_what_it_does_when_it_is_opened() -> None:
    clauses = {}
    for module in sorted(PACKAGE.rglob("*.py")):
        said = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
        if not said or said.startswith(CLAUSES):
            clauses[str(module.relative_to(PACKAGE))] = said[:60]

    assert not clauses


def test_no_import_is_left_out_of_the_rule_against_circles() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (circles,) = (c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "acyclic_siblings")

    assert "ignore_imports" not in circles
