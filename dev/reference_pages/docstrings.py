"""A docstring taken apart: text, fields, examples.

Text comes first, then the reST fields, then examples with the text between them; fields may also follow the
examples. Blank lines separate these parts, except that an example may begin right below a line of text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import griffe

_FIELD = re.compile(r":(param|return|raises)\b[^:]*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Docstring:
    """The parts of a docstring.

    :param text: everything before the fields and examples, in reST.
    :param parameters: name -> description.
    :param returns: what is returned, empty if not said.
    :param raises: (error, when) in order.
    :param examples: examples, which begin with ``>>>``, and what is said between and after them.
    """

    text: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    returns: str = ""
    raises: Sequence[tuple[str, str]] = ()
    examples: Sequence[str] = ()

    @property
    def summary(self) -> str:
        """The first sentence."""
        paragraph = " ".join(self.text.partition("\n\n")[0].split())
        return re.split(r"(?<=\.)(?<!e\.g\.)(?<!i\.e\.) (?=[A-Z`])", paragraph, maxsplit=1)[0]

    @property
    def code(self) -> list[str]:
        """The examples alone."""
        return [block for block in self.examples if is_example(block)]


def is_example(block: str) -> bool:
    """Whether a block of a docstring is an example."""
    return block.startswith(">>>")


def docstring_of(documented: griffe.Object) -> Docstring:
    """Take the docstring of a class, function or property apart; empty if it has none."""
    if documented.docstring is None:
        return Docstring()
    text: list[str] = []
    fields: list[str] = []
    examples: list[str] = []
    for block in _blocks(documented.docstring.value):
        if _FIELD.match(block):
            fields.append(block)
        elif examples or is_example(block):
            examples.append(block)
        else:
            text.append(block)
    parameters: dict[str, str] = {}
    returns = ""
    raises: list[tuple[str, str]] = []
    # griffe understands fields, but takes an example below them for a part of the last one.
    for section in griffe.Docstring("\n".join(fields), parent=documented).parse("sphinx", warnings=False):
        match section:
            case griffe.DocstringSectionParameters():
                parameters |= {parameter.name: parameter.description for parameter in section.value}
            case griffe.DocstringSectionReturns():
                returns = " ".join(returned.description for returned in section.value)
            case griffe.DocstringSectionRaises():
                raises += [(str(error.annotation), error.description) for error in section.value]
    return Docstring(
        text="\n\n".join(text), parameters=parameters, returns=returns, raises=raises, examples=examples
    )


def _blocks(text: str) -> list[str]:
    """Cut at blank lines and before an example that follows a line of text."""
    blocks: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        begin = -1 if is_example(paragraph) else paragraph.find("\n>>> ")
        blocks += [paragraph] if begin < 0 else [paragraph[:begin], paragraph[begin + 1 :]]
    return blocks
