"""From reST and annotations to Markdown as GitHub shows it, with links between the pages."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import griffe

from dev.reference_pages.public_api import PACKAGE

_INLINE = re.compile(r"``(?P<literal>.+?)``|:(?P<role>\w+):`~?(?P<target>[^`]+)`", re.DOTALL)
_LITERAL_BLOCK = re.compile(r"(?P<lead>[^\n]*)::\n\n(?P<code>(?:(?:[ ]{2,}[^\n]*)?\n?)+)")
#: An import that an example opens with.
_IMPORT = re.compile(r">>> from (?P<module>[\w.]+) import (?P<names>\w+(?:, \w+)*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a public name is described.

    :param label: the name as users write it, e.g. ``KStream.filter``.
    :param page: file name of the page.
    """

    label: str
    page: str

    @property
    def anchor(self) -> str:
        """What GitHub makes of the heading that is the label."""
        return slug(self.label)


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


class Markup:
    """Writes one page's Markdown.

    :param places: where each public class, function and member is described, by its path in the package.
    :param page: file name of the page being written.
    """

    def __init__(self, places: Mapping[str, Place], page: str) -> None:
        self._places = places
        self._page = page
        self._paths: dict[str, str] = {}
        for path, place in places.items():
            self._paths.setdefault(place.label, path)

    def prose(self, text: str, scope: griffe.Object) -> str:
        """Convert reST paragraphs.

        :param scope: whose docstring it is; names are looked up there first.
        """
        pieces: list[str] = []
        end = 0
        for block in _LITERAL_BLOCK.finditer(f"{text}\n"):
            pieces.append(self._inline(text[end : block.start()], scope))
            pieces.append(self._inline(f"{block['lead']}:" if block["lead"] else "", scope))
            pieces.append(f"\n\n```python\n{_dedented(block['code'])}\n```\n\n")
            end = block.end()
        pieces.append(self._inline(text[end:], scope))
        return "".join(pieces).strip()

    def cell(self, text: str, scope: griffe.Object) -> str:
        """Convert a phrase for a cell of a table."""
        return self._inline(" ".join(text.split()), scope).replace("|", "\\|")

    def annotation(self, annotation: griffe.Expr | str | None) -> str:
        """Write a type: aliases of this package spelt out, its public classes linked."""
        if annotation is None:
            return ""
        members: list[list[tuple[str, str]]] = [[]]
        depth = 0
        for text, path in _spelt_out(annotation):
            depth += text.count("[") - text.count("]")
            if text.strip() == "|" and depth == 0:
                members.append([])
            else:
                members[-1].append((text, path))
        # An alias may repeat what stands beside it, e.g. None.
        return " or ".join(dict.fromkeys(map(self._member, members)))

    def names_in(self, annotation: griffe.Expr | str | None) -> list[str]:
        """Return the paths of the names that a type consists of."""
        return [path for _, path in _spelt_out(annotation or "") if path]

    def link(self, path: str, text: str = "") -> str:
        """Write the link to a public name, as code.

        :param text: what to show; the name unless given.
        """
        place = self._places[path]
        page = "" if place.page == self._page else place.page
        return f"[`{text or place.label}`]({page}#{place.anchor})"

    def error(self, name: str, scope: griffe.Object) -> str:
        """Write the name of an error, linked if it is one of this package."""
        path = self._path_of(name, scope)
        return self.link(path) if path is not None else f"`{name}`"

    def _member(self, tokens: list[tuple[str, str]]) -> str:
        # A method returns what it is called on, and may be inherited from a base that is not public.
        shown = [
            self._places[path].label if name == "Self" and path in self._places else name
            for name, path in tokens
        ]
        text = "".join(shown).replace("|", "\\|")
        linked = next((path for _, path in tokens if path in self._places), None)
        return f"`{text}`" if linked is None else self.link(linked, text)

    def _inline(self, text: str, scope: griffe.Object) -> str:
        pieces: list[str] = []
        end = 0
        for found in _INLINE.finditer(text):
            pieces += [escaped(text[end : found.start()]), self._name(found, scope)]
            end = found.end()
        pieces.append(escaped(text[end:]))
        return "".join(pieces)

    def _name(self, found: re.Match[str], scope: griffe.Object) -> str:
        shown = " ".join((found["literal"] or found["target"]).split())
        name = shown.removesuffix("()")
        if found["role"] is None and not (name[:1].isupper() or "." in name):
            return f"`{shown}`"  # most literals in small letters are values and parameters
        path = self._path_of(name, scope)
        if path is None or path == scope.path:
            return f"`{shown.rpartition('.')[2] if found['role'] else shown}`"
        return self.link(path, shown if found["literal"] else "")

    def _path_of(self, name: str, scope: griffe.Object) -> str | None:
        owners = [scope.path, scope.parent.path if scope.parent else ""]
        inner = [f"{owner}.{name}" for owner in owners]
        labels = [f"{self._places[owner].label}.{name}" for owner in owners if owner in self._places]
        parts = name.split(".")
        # What users import from a package is defined below it.
        public = [".".join(parts[start:]) for start in range(len(parts))] if parts[0] == PACKAGE else [name]
        candidates = [*inner, name, *(self._paths.get(label, "") for label in [*labels, *public])]
        return next((path for path in candidates if path in self._places), None)


def default_of(parameter: griffe.Parameter) -> str:
    """Return a parameter's default as text; a constant of this package by its value."""
    default = parameter.default
    if isinstance(default, griffe.ExprName):
        constant = _definition(default)
        if isinstance(constant, griffe.Attribute) and isinstance(constant.value, str):
            default = constant.value
    text = str(default)
    if text.startswith("'") and '"' not in text:
        return f'"{text[1:-1]}"'  # as it is written everywhere else
    return f"{int(text):_}" if text.isdecimal() else text


def completed(example: str, modules: Mapping[str, str], *, followed_by: str = "") -> str:
    """Return an example with the imports that make it run as it stands; its own first ones join them.

    :param example: in doctest's form.
    :param modules: public name, or its first part -> the module to import it from.
    :param followed_by: examples that go on from this one.
    """
    source = f"{example}\n{followed_by}".splitlines()
    code = "\n".join(line[4:] for line in source if line.startswith((">>>", "...")))
    imported: dict[str, set[str]] = {}
    for name in _unbound(ast.parse(code)) & modules.keys():
        imported.setdefault(modules[name], set()).add(name)
    lines = example.splitlines()
    while lines and (own := _IMPORT.fullmatch(lines[0])) is not None:
        imported.setdefault(own["module"], set()).update(own["names"].split(", "))
        del lines[0]
    imports = [f">>> from {module} import {', '.join(sorted(names))}" for module, names in imported.items()]
    return "\n".join([*sorted(imports), *lines])


def _unbound(tree: ast.AST) -> set[str]:
    bound = set(dir(builtins))
    read: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                read.add(name)
            case ast.Name(id=name):
                bound.add(name)
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name=name, asname=alias):
                bound.add(alias or name)
    return read - bound


#: What is there for type checkers alone -> the class that users know, and its path.
_SHOWN_AS = {f"{PACKAGE}.streams.serde.base.Writes": ("Serde", f"{PACKAGE}.streams.serde.base.Serde")}


def _spelt_out(
    annotation: griffe.Expr | str, given: Mapping[str, list[tuple[str, str]]] = MappingProxyType({})
) -> Iterator[tuple[str, str]]:
    """Yield the pieces of a type, with the path of those that are names.

    :param given: what stands for each type variable of an alias.
    """
    if isinstance(annotation, griffe.ExprSubscript) and isinstance(annotation.left, griffe.ExprName):
        alias = _alias(annotation.left)
        if alias is not None:
            arguments = _arguments(annotation.slice)
            pieces = [[*_spelt_out(argument, given)] for argument in arguments]
            yield from _spelt_out(alias, dict(zip(_variables(alias), pieces, strict=False)))
            return
    if isinstance(annotation, griffe.ExprName):
        alias = _alias(annotation)
        if alias is not None:
            yield from _spelt_out(alias)
        elif _is_variable(annotation):
            yield from given.get(annotation.name, [(annotation.name, "")])
        elif annotation.canonical_path == "typing.Self" and isinstance(annotation.parent, griffe.Class):
            yield "Self", annotation.parent.path
        else:
            defined = _definition(annotation)
            path = defined.path if defined is not None else annotation.canonical_path
            yield _SHOWN_AS.get(path, (annotation.name, path))
    elif isinstance(annotation, griffe.Expr):
        for part in annotation.iterate(flat=False):
            yield from _spelt_out(part, given)
    else:
        yield str(annotation), ""


def _alias(name: griffe.ExprName) -> griffe.Expr | str | None:
    """Return the type that a name of this package stands for, None if it stands for itself."""
    defined = _definition(name)
    if not isinstance(defined, griffe.Attribute) or _is_variable(name) or not _is_type(defined.value):
        return None
    return defined.value


def _is_variable(name: griffe.ExprName) -> bool:
    return name.canonical_path.startswith(f"{PACKAGE}.streams.type_variables.")


def _variables(alias: griffe.Expr | str) -> list[str]:
    """Return the type variables of an alias, in the order in which they are given."""
    if isinstance(alias, str):
        return []
    names = [part for part in alias.iterate(flat=True) if isinstance(part, griffe.ExprName)]
    return [*dict.fromkeys(name.name for name in names if _is_variable(name))]


def _arguments(given: griffe.Expr | str) -> list[griffe.Expr | str]:
    return [*given.elements] if isinstance(given, griffe.ExprTuple) else [given]


def _definition(name: griffe.ExprName) -> griffe.Object | None:
    """Return what gives a name of this package its meaning, None for any other name."""
    path = name.canonical_path
    if not path.startswith(f"{PACKAGE}.") or not isinstance(name.parent, griffe.Object):
        return None
    found: griffe.Object | griffe.Alias = name.parent.modules_collection[path]
    return found.final_target if isinstance(found, griffe.Alias) else found


def _is_type(value: griffe.Expr | str | None) -> bool:
    return isinstance(value, griffe.ExprSubscript | griffe.ExprBinOp | griffe.ExprName)


def escaped(text: str) -> str:
    """Keep Markdown from reading marks into plain text; ``**bold**`` is the same in both."""
    return re.sub(r"(?<!\*)\*(?!\*)", r"\\*", text.replace("<", "\\<"))


def _dedented(code: str) -> str:
    lines = code.rstrip().splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:] for line in lines)
