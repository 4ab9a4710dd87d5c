"""Makes an application file of a function in a DAG file.

The function's source is taken out of the DAG file, so that drivers and executors need neither the DAG file
nor Airflow. Names of its module would be missing there, so a function that uses one is refused when the DAG
is parsed.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import inspect
import json
import symtable
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from airflow_kstreams.streams.errors import ConfigError

__all__ = ["application_text", "function_source"]

_MAIN = """

if __name__ == "__main__":
    from airflow_kstreams.spark import run

    run(topology)
"""


def function_source(function: Callable[..., Any]) -> str:
    """Return a function's source by itself: no decorators, no annotations of its parameters and result.

    :raises ConfigError: there is no source, or it uses names of its module or of a function around it, or
        takes any context there is.
    """
    name = function.__name__
    try:
        text = textwrap.dedent(inspect.getsource(function))
        node = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError):
        node = None
    if not isinstance(node, ast.FunctionDef) or node.name != name:
        raise ConfigError(
            f"@task.kstreams cannot read the source of {name!r}",
            fix="decorate a plain function (def), written in the DAG file",
        )
    if node.args.kwarg is not None:
        raise ConfigError(
            f"@task.kstreams function {name!r} takes **{node.args.kwarg.arg}, and Airflow's context does not "
            "travel to Spark as a whole",
            fix=f"name what it uses: def {name}(ds, params)",
        )
    source = _future(function) + _alone(text, node)
    missing = sorted(_free_names(source))
    if missing:
        raise ConfigError(
            f"@task.kstreams function {name!r} uses {', '.join(missing)} of its DAG file, which drivers and "
            "executors do not have",
            fix="import or define inside the function what it uses, or write an application file",
        )
    return source


def application_text(
    function: Callable[..., Any],
    arguments: Collection[Any] = (),
    keywords: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
) -> str:
    """Return an application file whose ``topology()`` calls a function with these arguments.

    :param context: Airflow's; a parameter that no argument is given for takes the value of its name.
    :raises ConfigError: as :func:`function_source`, or an argument is not plain JSON.
    """
    signature, named = inspect.signature(function), dict(keywords or {})
    left = signature.parameters.keys() - signature.bind_partial(*arguments, **named).arguments.keys()
    named.update({name: value for name, value in (context or {}).items() if name in left})
    for name, value in signature.bind_partial(*arguments, **named).arguments.items():
        _check_argument(function.__name__, name, value)
    given = json.dumps([list(arguments), named])
    return (
        f"{function_source(function)}\n\n_function = {function.__name__}\n\n\ndef topology():\n    import "
        f"json\n\n    arguments, keywords = json.loads({given!r})\n    return _function(*arguments, "
        f"**keywords)\n{_MAIN}"
    )


def _check_argument(function: str, name: str, value: Any) -> None:
    """Refuse an argument that is not plain JSON."""
    try:
        arrives = json.loads(json.dumps(value))
        fault = "" if arrives == value else f"{value!r:.100} would arrive as {arrives!r:.100}"
    except (TypeError, ValueError) as error:
        fault = str(error)
    if fault:
        raise ConfigError(
            f"argument {name!r} of @task.kstreams function {function!r} cannot travel to Spark: {fault}",
            fix="pass text, numbers, booleans, lists and dictionaries only; of a time of Airflow's context "
            f'its text, {name}="{{{{ data_interval_start | ts }}}}"',
        )


def _future(function: Callable[..., Any]) -> str:
    """Return the import that keeps annotations unevaluated, if the DAG file has it."""
    flags = inspect.unwrap(function).__code__.co_flags
    lazy = flags & __future__.annotations.compiler_flag
    return "from __future__ import annotations\n\n\n" if lazy else ""


def _alone(text: str, node: ast.FunctionDef) -> str:
    """Return the function with a bare signature and its body as it was written, comments included."""
    node.decorator_list, node.returns = [], None
    every = node.args
    for argument in (
        *every.posonlyargs,
        *every.args,
        *every.kwonlyargs,
        *filter(None, (every.vararg, every.kwarg)),
    ):
        argument.annotation = None
    first = node.body[0]
    signature = ast.unparse(
        ast.FunctionDef(**{**dict(ast.iter_fields(node)), "body": [ast.Pass()]}, lineno=1)
    )
    header = signature.splitlines()[0]
    if first.lineno == node.lineno:
        return ast.unparse(node) + "\n"
    body = text.splitlines()[first.lineno - 1 : node.end_lineno]
    return "\n".join([header, *body]) + "\n"


def _free_names(source: str) -> Iterator[str]:
    """Yield the names that a source looks up in its module and does not define itself."""
    module = symtable.symtable(source, "<function>", "exec")
    defined = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned()}
    known = defined | set(dir(builtins)) | {"__name__", "__file__"}
    tables = [module]
    found: set[str] = set()
    while tables:
        table = tables.pop()
        tables.extend(table.get_children())
        found |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (table is module or _is_global(symbol))
        }
    yield from found - known


def _is_global(symbol: symtable.Symbol) -> bool:
    # Names that a function binds are global to Python's symtable, too, where the function is called "top".
    return symbol.is_declared_global() or (symbol.is_global() and not symbol.is_local())
