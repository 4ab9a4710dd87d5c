"""What is public, read from the source.

Rule: a class or function is public when it stands in the ``__all__`` of a documented module: those of
``EXPORTING`` and ``WHOLE`` and, in the packages of ``AIRFLOW_SIDE``, each that has one, since users import
operators from the module that defines them. An exported module, e.g. ``serdes``, stands for what it exports
or, without an ``__all__``, defines. The classes of the error tree are public without being exported one by
one. Of a public class, every method and property without a leading underscore is public.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import griffe

PACKAGE = "airflow_kstreams"
ROOT = Path(__file__).resolve().parents[2]

#: Modules whose ``__all__`` users import from. One that does not exist is passed over.
EXPORTING = tuple(f"{PACKAGE}.{name}" for name in ("streams", "testing", "explore", "inspect", "spark"))
#: Modules that users import as a whole: ``from airflow_kstreams.kafka import schema_registry``.
WHOLE = (f"{PACKAGE}.kafka.schema_registry",)
AIRFLOW_SIDE = tuple(f"{PACKAGE}.{name}" for name in ("operators", "sensors", "triggers", "hooks"))
#: A module there that exports Airflow's names to the others.
_BRIDGE = f"{PACKAGE}.hooks.airflow_versions"
ERRORS = f"{PACKAGE}.streams.errors"
#: The attribute of an error's class that gives its code.
CODE = "own_code"

#: Methods that Airflow calls and nobody else; their parameters are Airflow's.
CALLED_BY_AIRFLOW = frozenset({"execute", "execute_complete", "on_kill", "poke", "run", "serialize"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicName:
    """A public class or function, or a module that is exported as a whole.

    :param name: as users write it, e.g. ``KStream`` or ``serdes.string``.
    :param module: what users import it, or the first part of its name, from.
    :param target: its definition.
    """

    name: str
    module: str
    target: griffe.Class | griffe.Function | griffe.Module

    @property
    def path(self) -> str:
        """Where it is defined, e.g. ``airflow_kstreams.streams.kstream.kstream.KStream``."""
        return self.target.path

    @property
    def import_line(self) -> str:
        """The line that makes the name usable."""
        return f"from {self.module} import {self.name.partition('.')[0]}"


def load_package(root: Path = ROOT) -> griffe.Module:
    """Read the source of the package.

    :param root: the folder that holds the package's.
    """
    loader = griffe.GriffeLoader(search_paths=[root], allow_inspection=False)
    package = loader.load(PACKAGE, try_relative_path=False)
    loader.resolve_aliases(external=False)
    if not isinstance(package, griffe.Module):
        raise TypeError(f"{PACKAGE} is no package")
    return package


def public_names(package: griffe.Module) -> list[PublicName]:
    """Return everything public once, under the first name that users find it by."""
    found: dict[str, PublicName] = {}
    for module in _documented(package):
        for public in _exported(module):
            found.setdefault(public.path, public)
    for path in WHOLE:
        module_or_none = module_at(package, path)
        if module_or_none is not None:
            for public in _whole(module_or_none):
                found.setdefault(public.path, public)
    for error in error_classes(package):
        found.setdefault(error.path, PublicName(name=error.name, module=error.module.path, target=error))
    return list(found.values())


def error_classes(package: griffe.Module) -> list[griffe.Class]:
    """Return the classes of the error tree: those of its module, then those elsewhere that have a code."""
    errors = module_at(package, ERRORS)
    elsewhere = (
        each
        for module in _below(package)
        if module.path != ERRORS
        for each in module.classes.values()
        if isinstance(each, griffe.Class) and CODE in each.members
    )
    return [*(errors.classes.values() if errors is not None else ()), *elsewhere]


def _below(module: griffe.Module) -> Iterator[griffe.Module]:
    yield module
    for _, each in sorted(module.modules.items()):
        if isinstance(each, griffe.Module):
            yield from _below(each)


def public_members(cls: griffe.Class, public: frozenset[str]) -> list[griffe.Function | griffe.Attribute]:
    """Return what users may call or read of a class, in the order of the source.

    That is its methods, its properties and the attributes described by a ``#:`` comment; and those it
    inherits from bases of this package that are not public themselves.

    :param public: paths of the public classes.
    """
    members = {
        name: member
        for owner in (*reversed(hidden_bases(cls, public)), cls)
        for name, member in owner.members.items()
        if isinstance(member, griffe.Function | griffe.Attribute) and _is_usable(member)
    }
    if cls.path.startswith(AIRFLOW_SIDE):
        members = {name: member for name, member in members.items() if name not in CALLED_BY_AIRFLOW}
    return list(members.values())


def hidden_bases(cls: griffe.Class, public: frozenset[str]) -> list[griffe.Class]:
    """Return the bases whose members are shown with a class: those before its first public base."""
    return list(takewhile(lambda base: base.path not in public, cls.mro()))


def comment_above(attribute: griffe.Attribute) -> str:
    """Return the ``#:`` comment above an attribute, empty if there is none."""
    lines: list[str] = []
    filepath = attribute.module.filepath
    if isinstance(filepath, list):  # a package without __init__.py has no attributes
        return ""
    source = attribute.lines_collection[filepath]
    number = (attribute.lineno or 1) - 2
    while number >= 0 and source[number].strip().startswith("#:"):
        lines.insert(0, source[number].strip().removeprefix("#:").strip())
        number -= 1
    return "\n".join(lines)


def module_at(package: griffe.Module, path: str) -> griffe.Module | None:
    """Return a module of the package, None if there is none at this path."""
    found: griffe.Object | griffe.Alias = package
    for part in path.split(".")[1:]:
        if part not in found.members:
            return None
        found = found.members[part]
    return found if isinstance(found, griffe.Module) else None


def _documented(package: griffe.Module) -> Iterator[griffe.Module]:
    for path in EXPORTING:
        module = module_at(package, path)
        if module is not None:
            yield module
    for path in AIRFLOW_SIDE:
        parent = module_at(package, path)
        for _, module in sorted(parent.modules.items()) if parent is not None else ():
            exports = isinstance(module, griffe.Module) and module.exports is not None
            if exports and module.path != _BRIDGE:
                yield module


def _exported(module: griffe.Module, prefix: str = "", importer: str = "") -> Iterator[PublicName]:
    """Yield what a module exports; what its exported modules export comes last.

    :param prefix: what users write before the names.
    :param importer: the module that users import the first part of the names from.
    """
    names = module.exports if module.exports is not None else _defined(module)
    importer = importer or module.path
    inner: list[tuple[str, griffe.Module]] = []
    for name in map(str, names):
        target = _final(module.members[name])
        if isinstance(target, griffe.Module):
            inner.append((f"{prefix}{name}", target))
        elif isinstance(target, griffe.Class | griffe.Function):
            yield PublicName(name=f"{prefix}{name}", module=importer, target=target)
    for name, exported in inner:
        yield from _whole(exported, name, importer)


def _whole(module: griffe.Module, name: str = "", importer: str = "") -> Iterator[PublicName]:
    """Yield a module that users import as a whole, then what it exports."""
    package, _, last = module.path.rpartition(".")
    yield PublicName(name=name or last, module=importer or package, target=module)
    yield from _exported(module, f"{name or last}.", importer or package)


def _defined(module: griffe.Module) -> list[str]:
    """Return the names of the classes and functions that a module without ``__all__`` defines for others."""
    return [
        name
        for name, member in module.members.items()
        if not name.startswith("_") and isinstance(member, griffe.Class | griffe.Function)
    ]


def _final(member: griffe.Object | griffe.Alias) -> griffe.Object | griffe.Alias:
    return member.final_target if isinstance(member, griffe.Alias) else member


def _is_usable(member: griffe.Function | griffe.Attribute) -> bool:
    if member.name.startswith("_") or not member.runtime:  # what stands below TYPE_CHECKING is for checkers
        return False
    return isinstance(member, griffe.Function) or "property" in member.labels or bool(comment_above(member))
