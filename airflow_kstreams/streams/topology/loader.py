"""Loads an application file and builds its topology, in this process or for another one.

``python -m airflow_kstreams.streams.topology.loader APP_FILE APPLICATION_ID`` prints the plan as JSON after
``KSTREAMS-PLAN`` on stdout, or the error as JSON after ``KSTREAMS-ERROR`` on stderr. Airflow's workers use it
so, because user code then neither stays in their memory nor can it take them down.

The file is run as a module named by its stem, the name it has wherever Spark builds it again: names of user
classes, and so the topology hash, are the same in every process.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import msgspec

from airflow_kstreams.streams.errors import ERROR_MARKER, KStreamsError, TopologyError
from airflow_kstreams.streams.topology.topology import Topology

#: Starts the line that carries the plan.
PLAN_MARKER = "KSTREAMS-PLAN "

#: What an application file must define.
FACTORY = "topology"

#: Names of modules that this loader put into ``sys.modules``; the same name may be loaded again.
_loaded: set[str] = set()


def load_topology(path: str | Path) -> Topology:
    """Run an application file and call its ``topology()``.

    :param path: the application file.
    :return: the topology it builds.
    :raises TopologyError: the file is missing, does not run, has no ``topology`` function, or that returns
        something else; with the user's file and line.
    """
    file = Path(path)
    if not file.is_file():
        raise TopologyError(
            f"application file {str(file)!r} does not exist",
            fix="correct the operator's application path; it must exist on every Airflow worker",
        )
    module = _run(file.resolve())
    factory = getattr(module, FACTORY, None)
    if not callable(factory):
        found = "nothing of that name" if factory is None else f"a {type(factory).__name__}"
        raise TopologyError(
            f"application file {str(file)!r} must define a function topology(), found {found}",
            fix="define `def topology(): ...` at the top level, ending with `return builder.build()`",
        )
    with _as_topology_error(file.resolve(), "topology() fails"):
        topology = factory()
    if not isinstance(topology, Topology):
        raise TopologyError(
            f"application file {str(file)!r}: topology() returned {type(topology).__name__}, not a Topology",
            fix="end the function with `return builder.build()`",
        )
    return topology


def _run(file: Path) -> ModuleType:
    name = file.stem
    if name in sys.modules and name not in _loaded:
        raise TopologyError(
            f"application file {str(file)!r} has the name of another module, {name!r}, and would hide it",
            fix="rename the application file",
        )
    module = ModuleType(name)
    module.__file__ = str(file)
    with _as_topology_error(file, "does not import"):
        # Compiled from the text, never from a cached .pyc: a file changed twice within a second must not run
        # stale.
        code = compile(file.read_text(encoding="utf-8"), str(file), "exec")
        folder = str(file.parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)  # as spark-submit does, so that the file finds its neighbours
        sys.modules[name] = module
        _loaded.add(name)
        exec(code, module.__dict__)  # noqa: S102 - running the user's file is the purpose
    return module


@contextlib.contextmanager
def _as_topology_error(file: Path, what: str) -> Iterator[None]:
    """Convert what user code raises into one line that names the user's file and line."""
    try:
        yield
    except KStreamsError:
        raise
    except SystemExit as error:
        raise TopologyError(
            f"application file {str(file)!r} {what}: it ends the process at {_place(error, file)}",
            fix='start the run only under `if __name__ == "__main__":`',
        ) from error
    except Exception as error:
        text = " ".join(str(error).split())
        raise TopologyError(
            f"application file {str(file)!r} {what}: {type(error).__name__}: {text} at {_place(error, file)}",
            fix="correct that line; what the file imports must be installed on Airflow's workers too",
        ) from error


def _place(error: BaseException, file: Path) -> str:
    """Return the innermost line of the user's file that led to an error."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno or 0}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == str(file)]
    place = own[-1] if own else None
    return f"{place.filename}:{place.lineno}" if place else str(file)


def main(argv: Sequence[str]) -> int:
    """Print the plan of ``APP_FILE APPLICATION_ID``; return 0, or 1 after printing an error."""
    path, application_id = argv
    try:
        # What user code prints must not mix with the answer.
        with contextlib.redirect_stdout(sys.stderr):
            plan = load_topology(path).plan(application_id)
    except KStreamsError as error:
        sys.stderr.write(f"\n{ERROR_MARKER}{json.dumps(error.to_dict())}\n")
        return 1
    sys.stdout.write(f"{PLAN_MARKER}{msgspec.json.encode(plan).decode()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
