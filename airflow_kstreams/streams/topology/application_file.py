"""Loads an application file, the user's own program, which defines ``topology()``.

The file is run as a module named by its stem wherever the topology is built: by capture, by the driver and by
every executor. So names of user classes, and the topology hash, are the same in every process. The file
travels to executors as text, never as a pickled topology: pickling the function by value would also pickle
the user's classes by value, which breaks typed structs (a ``msgspec.Struct`` rebuilt that way loses its
fields).
"""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from airflow_kstreams.streams.errors import KStreamsError, TopologyError
from airflow_kstreams.streams.topology.topology import Topology

#: The function that an application file must define.
FACTORY = "topology"

#: Modules made from application files in this process, by file and digest: worker processes serve many tasks.
_modules: dict[tuple[str, str], ModuleType] = {}
#: Their names in ``sys.modules``; the same name may be taken again, by a later text of the file.
_names: set[str] = set()
#: Reentrant: an application file may load another one.
_loading = threading.RLock()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationFile:
    """The text of an application file and the name of its topology function.

    :param filename: name for messages and tracebacks; the file need not exist where the topology is built.
    :param text: the source.
    :param function: name of the function that returns the topology.
    """

    filename: str
    text: str
    function: str = FACTORY

    @classmethod
    def read(cls, path: str | Path) -> ApplicationFile:
        """Read a file.

        :raises TopologyError: the file does not exist.
        """
        file = Path(path)
        if not file.is_file():
            raise TopologyError(
                f"application file {str(file)!r} does not exist",
                fix="correct the operator's application path; it must exist on every Airflow worker",
            )
        return cls(filename=str(file.resolve()), text=file.read_text(encoding="utf-8"))

    @classmethod
    def of(cls, factory: Callable[[], Topology]) -> ApplicationFile:
        """Find the file that defines a topology function.

        :raises TopologyError: the function is not a top-level function of a file.
        """
        filename = getattr(sys.modules.get(factory.__module__), "__file__", None)
        if filename is None or "." in factory.__qualname__ or factory.__name__ == "<lambda>":
            raise TopologyError(
                f"the topology function {factory.__qualname__!r} is not a top-level function of a file",
                fix="define `def topology(): ...` at the top level of the application file, and run that",
            )
        path = Path(filename).resolve()
        return cls(filename=str(path), text=path.read_text(encoding="utf-8"), function=factory.__name__)

    def topology(self) -> Topology:
        """Run the file and call its topology function.

        :raises TopologyError: the file does not run, has no such function, or the function returns another
            object; with the user's file and line.
        """
        factory = getattr(self._module(), self.function, None)
        if not callable(factory):
            found = "nothing of that name" if factory is None else f"a {type(factory).__name__}"
            raise TopologyError(
                f"application file {self.filename!r} must define a function {self.function}(), found {found}",
                fix="define `def topology(): ...` at the top level, ending with `return builder.build()`",
            )
        # Tasks of one process call it at the same time, for which neither the user's function nor the imports
        # of its file may be made.
        with _loading, self._as_topology_error(f"{self.function}() fails"):
            topology = factory()
        if not isinstance(topology, Topology):
            raise TopologyError(
                f"application file {self.filename!r}: {self.function}() returned "
                f"{type(topology).__name__}, not a Topology",
                fix="end the function with `return builder.build()`",
            )
        return topology

    def _module(self) -> ModuleType:
        key = (self.filename, hashlib.sha256(self.text.encode()).hexdigest())
        with _loading:  # several tasks of one process call this at the same time
            if key not in _modules:
                _modules[key] = self._run()
            return _modules[key]

    def _run(self) -> ModuleType:
        path = Path(self.filename)
        name = path.stem
        if name in sys.modules and name not in _names and not self._is_main_program():
            raise TopologyError(
                f"application file {self.filename!r} has the name of another module, {name!r}, and would "
                "hide it",
                fix="rename the application file",
            )
        module = ModuleType(name)
        module.__file__ = self.filename
        with self._as_topology_error("does not import"):
            # Compiled from the text, never from a cached .pyc: a file changed twice within a second must not
            # run stale.
            code = compile(self.text, self.filename, "exec")
            folder = str(path.parent)
            if folder not in sys.path:
                sys.path.insert(0, folder)  # as spark-submit does: the file imports those beside it
            # Tracebacks show the user's lines also on executors, where the file may not exist.
            linecache.cache[self.filename] = (len(self.text), None, self.text.splitlines(True), self.filename)
            sys.modules[name] = module
            _names.add(name)
            exec(code, module.__dict__)  # noqa: S102 - running the user's file is the purpose
        return module

    def _is_main_program(self) -> bool:
        """Return True if the module of this name is this file, imported before."""
        other = getattr(sys.modules[Path(self.filename).stem], "__file__", None)
        return other is not None and Path(other).resolve() == Path(self.filename)

    @contextlib.contextmanager
    def _as_topology_error(self, what: str) -> Iterator[None]:
        """Convert an error of user code into one line that names the user's file and line."""
        try:
            yield
        except KStreamsError:
            raise
        except SystemExit as error:
            raise TopologyError(
                f"application file {self.filename!r} {what}: it ends the process at {self._place(error)}",
                fix='start the run only under `if __name__ == "__main__":`',
            ) from error
        except Exception as error:
            text = " ".join(str(error).split())
            raise TopologyError(
                f"application file {self.filename!r} {what}: {type(error).__name__}: {text} at "
                f"{self._place(error)}",
                fix="correct that line; what the file imports must be installed wherever it runs: on "
                "Airflow's workers and on Spark's executors",
            ) from error

    def _place(self, error: BaseException) -> str:
        """Return the innermost line of the user's file that led to an error."""
        if isinstance(error, SyntaxError) and error.filename:
            return f"{error.filename}:{error.lineno or 0}"
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename == self.filename]
        return f"{own[-1].filename}:{own[-1].lineno}" if own else self.filename
