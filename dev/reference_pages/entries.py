"""What a page says of one class, function or member."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, groupby

import griffe

from dev.reference_pages.docstrings import Docstring, docstring_of, is_example
from dev.reference_pages.markup import Markup, completed, default_of
from dev.reference_pages.public_api import PACKAGE, PublicName, comment_above, public_members

#: Signatures longer than this are written a parameter a line.
_SIGNATURE_WIDTH = 88

#: Classes that only this package makes, where their constructor does not tell.
_MADE_HERE = frozenset({"StoreView"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of a table, as Markdown.

    :param name: of a parameter, field or error.
    :param type: of a parameter or field.
    :param meaning: description; may be empty.
    """

    name: str
    type: str = ""
    meaning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A piece of what follows the fields: an example, or text between two.

    :param example: whether ``text`` is code rather than Markdown.
    """

    text: str
    example: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A public name with everything a page says of it, as Markdown.

    :param title: the name as users write it.
    :param import_line: empty for members.
    :param bases: the public classes it derives from.
    :param signatures: one; none where users call nothing.
    :param type: of a property, or what a function returns.
    :param returns: what is returned; of an operator, what it leaves in XCom.
    :param parameters: in the order of the signature; fields, if nothing is called.
    """

    title: str
    summary: str
    text: str
    import_line: str = ""
    bases: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()
    type: str = ""
    returns: str = ""
    parameters: tuple[Row, ...] = ()
    raises: tuple[Row, ...] = ()
    blocks: tuple[Block, ...] = ()
    members: tuple[Entry, ...] = field(default=())

    @property
    def described(self) -> bool:
        """Whether some parameter is described."""
        return any(row.meaning for row in self.parameters)


class Entries:
    """Makes the entries of one page.

    :param markup: the page's.
    :param public: every public name, by its path.
    """

    def __init__(self, markup: Markup, public: Mapping[str, PublicName]) -> None:
        self._markup = markup
        self._public = public
        self._modules: dict[str, str] = {}
        for name in public.values():
            self._modules.setdefault(name.name.partition(".")[0], name.module)

    def entry(self, name: PublicName) -> Entry:
        """Describe something public with its members."""
        match name.target:
            case griffe.Module():
                return self._module(name, name.target)
            case griffe.Class():
                return self._class(name, name.target)
            case griffe.Function():
                return self._callable(name.target, name.name, import_line=name.import_line)

    def _module(self, name: PublicName, module: griffe.Module) -> Entry:
        docstring = docstring_of(module)
        functions = [
            each
            for each in self._public.values()
            if isinstance(each.target, griffe.Function) and each.name.rpartition(".")[0] == name.name
        ]
        return Entry(
            title=name.name,
            summary=self._markup.cell(docstring.summary, module),
            text=self._markup.prose(docstring.text, module),
            import_line=name.import_line,
            blocks=self._blocks(docstring, module),
            members=tuple(
                self._callable(function.target, function.name)
                for function in sorted(functions, key=lambda each: each.target.lineno or 0)
                if isinstance(function.target, griffe.Function)
            ),
        )

    def _class(self, name: PublicName, target: griffe.Class) -> Entry:
        docstring = docstring_of(target)
        parameters = list(self.constructor(target))
        members = public_members(target, frozenset(self._public))
        return Entry(
            title=name.name,
            summary=self._markup.cell(docstring.summary, target),
            text=self._markup.prose(docstring.text, target),
            import_line=name.import_line,
            bases=tuple(self._markup.link(base.path) for base in target.mro() if base.path in self._public),
            signatures=() if not parameters or is_mapping(target) else (signature(name.name, parameters),),
            returns=self._markup.cell(docstring.returns, target),
            parameters=tuple(self._rows(parameters, fields_described(target), target)),
            raises=self._raises(docstring, target),
            blocks=self._blocks(docstring, target),
            members=tuple(self._member(name.name, member) for member in members),
        )

    def constructor(self, cls: griffe.Class) -> Iterator[griffe.Parameter]:
        """Yield the parameters by which users make a class; none if only this package makes it."""
        parameters = [parameter for parameter in constructor_parameters(cls) if parameter.name != "self"]
        if cls.name not in _MADE_HERE and not any(map(self._is_internal, parameters)):
            yield from parameters

    def _is_internal(self, parameter: griffe.Parameter) -> bool:
        return any(
            path.startswith(f"{PACKAGE}.") and path not in self._public
            for path in self._markup.names_in(parameter.annotation)
        )

    def _member(self, owner: str, member: griffe.Function | griffe.Attribute) -> Entry:
        title = f"{owner}.{member.name}"
        if isinstance(member, griffe.Function):
            return self._callable(member, title)
        docstring = docstring_of(member)
        text = docstring.text or comment_above(member)
        return Entry(
            title=title,
            summary=self._markup.cell(docstring.summary or text, member),
            text=self._markup.prose(text, member),
            type=self._markup.annotation(member.annotation),
            raises=self._raises(docstring, member),
            blocks=self._blocks(docstring, member),
        )

    def _callable(self, function: griffe.Function, title: str, *, import_line: str = "") -> Entry:
        docstring = docstring_of(function)
        parameters = [parameter for parameter in function.parameters if parameter.name not in ("self", "cls")]
        in_class = isinstance(function.parent, griffe.Class)
        # What overloads say beside it, they say to type checkers.
        written = signature(function.name if in_class else title, [*function.parameters])
        returns = "" if str(function.returns) == "None" else self._markup.annotation(function.returns)
        return Entry(
            title=title,
            summary=self._markup.cell(docstring.summary, function),
            text=self._markup.prose(docstring.text, function),
            import_line=import_line,
            signatures=(written,),
            type=returns,
            returns=self._markup.cell(docstring.returns, function),
            parameters=tuple(self._rows(parameters, docstring.parameters, function)),
            raises=self._raises(docstring, function),
            blocks=self._blocks(docstring, function),
        )

    def _rows(
        self, parameters: list[griffe.Parameter], described: Mapping[str, str], scope: griffe.Object
    ) -> Iterator[Row]:
        for parameter in parameters:
            yield Row(
                name=f"`{_starred(parameter)}`",
                type=self._markup.annotation(parameter.annotation),
                meaning=self._markup.cell(described.get(parameter.name, ""), scope),
            )

    def _raises(self, docstring: Docstring, scope: griffe.Object) -> tuple[Row, ...]:
        return tuple(
            Row(
                name=self._markup.error(error, scope),
                meaning=self._markup.prose(" ".join(when.split()), scope),
            )
            for error, when in docstring.raises
        )

    def _blocks(self, docstring: Docstring, scope: griffe.Object) -> tuple[Block, ...]:
        """Return the examples, each with what stands between it and the next."""
        blocks = [
            Block(text="\n\n".join(group), example=example)
            for example, group in groupby(docstring.examples, key=is_example)
        ]
        written: list[Block] = []
        for number, block in enumerate(blocks):
            if not block.example:
                text = self._markup.prose(block.text, scope)
            elif number == 0:
                rest = [later.text for later in blocks[1:] if later.example]
                text = completed(block.text, self._modules, followed_by="\n".join(rest))
            else:
                text = block.text
            written.append(Block(text=text, example=block.example))
        return tuple(written)


def constructor_parameters(cls: griffe.Class) -> list[griffe.Parameter]:
    """Return the parameters of a class, or the fields of a plain structure.

    griffe knows constructors and dataclasses; a ``NamedTuple``, a ``TypedDict`` or a struct of msgspec has
    none that stands in the source. A parameter that a class describes and hands on to a base stands where the
    class describes it.
    """
    if any(str(base).rpartition(".")[2] in ("NamedTuple", "TypedDict", "Struct") for base in cls.bases):
        return [
            griffe.Parameter(
                name,
                annotation=attribute.annotation,
                kind=griffe.ParameterKind.positional_or_keyword,
                default=attribute.value,
            )
            for name, attribute in cls.attributes.items()
            if not name.startswith("_") and "property" not in attribute.labels
        ]
    if is_protocol(cls):
        return []
    own = {parameter.name: parameter for parameter in cls.parameters}
    described = [*docstring_of(cls).parameters]
    of_bases = {
        parameter.name: parameter
        for base in reversed(cls.mro())
        for parameter in base.parameters
        if parameter.name in described and parameter.name not in own
    }
    found = [*own.values(), *of_bases.values()]
    if of_bases:
        places = {name: place for place, name in enumerate(["self", *described])}
        found.sort(key=lambda parameter: places.get(parameter.name, len(places)))
    return found


def is_protocol(cls: griffe.Class) -> bool:
    """Whether a class says what others implement."""
    return any(str(base).partition("[")[0].rpartition(".")[2] == "Protocol" for base in cls.bases)


def is_mapping(cls: griffe.Class) -> bool:
    """Whether a class only types a dict, which users make themselves."""
    return any(str(base).rpartition(".")[2] == "TypedDict" for base in cls.bases)


def fields_described(cls: griffe.Class) -> dict[str, str]:
    """Return what a class and its bases say of their parameters; the class itself has the last word."""
    lineage = [*reversed(cls.mro()), cls]
    return dict(chain.from_iterable(docstring_of(each).parameters.items() for each in lineage))


def signature(name: str, parameters: list[griffe.Parameter]) -> str:
    """Write how something is called; types stand in the table of parameters."""
    written: list[str] = []
    keyword_only = False
    for parameter in parameters:
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is griffe.ParameterKind.keyword_only and not keyword_only:
            keyword_only = True
            if not any(text.startswith("*") for text in written):
                written.append("*")
        text = _starred(parameter)
        has_default = parameter.default is not None and not text.startswith("*")
        written.append(f"{text}={default_of(parameter)}" if has_default else text)
    line = f"{name}({', '.join(written)})"
    if len(line) <= _SIGNATURE_WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {text}," for text in written), ")"])


def _starred(parameter: griffe.Parameter) -> str:
    stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
    return f"{stars.get(parameter.kind or griffe.ParameterKind.keyword_only, '')}{parameter.name}"
