"""Files of applications for tests: their texts, written and loaded."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

#: An application with a class of its own, as a driver ships it.
SHIPPED = """
import msgspec
from airflow_kstreams.streams import KStreamBuilder, serdes

class Event(msgspec.Struct):
    n: int

def topology():
    builder = KStreamBuilder()
    stream = builder.stream("in", key_serde=serdes.string(), value_serde=serdes.json(Event))
    stream.filter(lambda k, e: isinstance(e, Event)).send_to("out")
    return builder.build()

def not_a_topology():
    return 7
"""

#: An application that prints when it is loaded.
PRINTING = """
from airflow_kstreams.streams import KStreamBuilder, serdes

print("user code may print")

def topology():
    builder = KStreamBuilder()
    builder.stream("in", key_serde=serdes.string(), value_serde=serdes.string()).send_to(
        "out", key_serde=serdes.string(), value_serde=serdes.string()
    )
    return builder.build()
"""


def write_application(folder: Path, text: str, name: str = "some_application.py") -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def load(path: Path) -> ModuleType:
    """Import a file as a module of its name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module
