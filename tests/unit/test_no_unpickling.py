"""Nothing that comes from Kafka can become code: the package has no way to do it.

A list, not a judgement: whoever needs one of these has to come here and say why its input is trusted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import airflow_kstreams

pytestmark = pytest.mark.promise("nothing-from-kafka-is-run")

PACKAGE = Path(airflow_kstreams.__file__).parent
MODULES = frozenset(
    {
        "pickle",
        "_pickle",
        "cPickle",
        "cloudpickle",
        "dill",
        "marshal",
        "shelve",
        "jsonpickle",
        "joblib",
        "yaml",
    }
)
CALLS = frozenset({"eval", "exec", "compile", "__import__", "import_module", "read_pickle", "loads_pickle"})
#: File -> the calls that its trusted input needs.
TRUSTED = {
    "streams/topology/application_file.py": {"exec", "compile"},  # the user's own file
    "kafka/schema_registry/binding.py": {"import_module"},  # constants
    "kafka/configuration/code_settings.py": {"import_module"},  # what the administrator allows
    "streams/codegen/loop_code.py": {"exec", "compile"},  # its own lines; users only give objects to them
    "streams/tables/row_values.py": {"exec"},  # its own lines; of users, identifiers of attributes
    "batch/inspect/doctor/findings.py": {"import_module"},  # constants: the names of its checks
    "cli/app.py": {"import_module"},  # constants: the names of its commands
    "streams/__init__.py": {"import_module"},  # constants: the modules of its own table of names
    "streams/hints/java_names.py": {"import_module"},  # constants: the modules of its own table of classes
    "explore/__init__.py": {"import_module"},  # constants: the modules of its own table of names
    # They compare what they wrote themselves, and read nothing.
    "streams/state/stores/store_serdes.py": {"marshal"},
    "streams/state/stores/value_copies.py": {"marshal", "pickle"},
    # Patterns of schemas for RE2, which runs no code; its options are no store's.
    "kafka/schema_registry/json_checking.py": {"compile", "rocksdict.Options without raw_mode"},
    "spark/driver/spark_session.py": set(),
}


def files() -> Iterator[Path]:
    yield from sorted(PACKAGE.rglob("*.py"))


def dangerous(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            called = node.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            is_regex = (
                isinstance(called, ast.Attribute)
                and isinstance(called.value, ast.Name)
                and (called.value.id == "re")
            )
            if name in CALLS and not is_regex:
                yield name
            # Its default pickles values; only in raw mode does it store bytes as they are.
            if name == "Options" and not any(word.arg == "raw_mode" for word in node.keywords):
                yield "rocksdict.Options without raw_mode"
            if any(word.arg in ("allow_pickle", "ext_hook", "object_hook") for word in node.keywords):
                yield "a decoder that makes objects"


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_file_cannot_make_code_of_data_when_read(path: Path) -> None:
    allowed = TRUSTED.get(str(path.relative_to(PACKAGE)), set())
    assert set(dangerous(path.read_text(encoding="utf-8"))) <= allowed


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from cloudpickle import loads",
        "import yaml",
        "eval(x)",
        "builtins.exec(x)",
        "importlib.import_module(x)",
        "rocksdict.Options()",
        "numpy.load(x, allow_pickle=True)",
        "pandas.read_pickle(x)",
    ],
)
def test_check_objects_when_something_could(source: str) -> None:
    assert list(dangerous(source))
