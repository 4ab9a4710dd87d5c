"""Removes parts that may be of a record from texts of errors: logs must not hold data of users."""

from __future__ import annotations

import builtins
import re

#: What an error may repeat of a record: something in quotes, which no apostrophe within a word opens, or a
#: number.
_REPEATED = re.compile(
    r"""(?:(?<!\w)|(?<=\b[bB]))(?P<mark>['"])(?P<quoted>(?:\\.|(?!(?P=mark)).)*)(?P=mark)|-?\d+\.?\d{2,}"""
)
#: How Python says which arguments a call lacks.
_MISSING = re.compile(r"missing \d+ required (?:positional|keyword-only) arguments?: .*")
#: How Python says which of its operators two objects do not have.
_OPERATOR = re.compile(r"'[^\w\s'\"]{1,3}' not supported between instances of ")
#: What Python's own errors quote and no record decides: names of its types, of what serdes do, of encodings.
_PYTHONS_OWN = "\n".join(
    [
        *(name for name, found in vars(builtins).items() if isinstance(found, type)),
        *("NoneType", "function", "module", "encode", "decode", "utf-8", "ascii", "latin-1"),
    ]
)


class UnfitResultError(ValueError):
    """A function of the user's gave an impossible number, which may be data and is not repeated."""

    own_words = True  # nothing of them is to be hidden


def without_values(text: str, *, own: str) -> str:
    """Return an error's text without the parts that may be of a record.

    Quoted parts and longer numbers are taken out unless they are whole words of the program: those are what
    Python's own errors and those of decoders repeat. They may come from the record, in whatever form its
    serde gives it, from a table or from a join's other side. What a user's function writes otherwise is its
    own choice.

    :param own: the words of the program itself.
    """
    missing = _MISSING.search(text)
    known = f"{own}\n{_PYTHONS_OWN}"
    if missing is not None:  # names of parameters
        known += f"\n{missing[0]}"
    operator = _OPERATOR.search(text)
    if operator is not None:
        known += f"\n{operator[0]}"

    def shown(match: re.Match[str]) -> str:
        quoted = match["quoted"] is not None
        part = match["quoted"] if quoted else match[0]
        if part and re.search(rf"(?<!\w){re.escape(part)}(?!\w)", known) is not None:
            return match[0]
        return f"{match['mark']}***{match['mark']}" if quoted else "***"

    return _REPEATED.sub(shown, text)
