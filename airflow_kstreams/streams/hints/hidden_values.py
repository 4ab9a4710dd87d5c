"""Removes parts that may come from a record from texts of errors: logs must not hold data of users.

An error whose class has ``own_words`` is shown as it is: its text holds facts of the program alone (names of
topics, stores and serdes, ids and rules of schemas, counts), and what others say without its values.
"""

from __future__ import annotations

import builtins
import re
from functools import cache

#: Longest text that is searched, characters: what follows is cut off.
_LONGEST = 10_000
_CUT = " ... (cut)"
#: The mark that opens a quotation; no apostrophe within a word does.
_MARK = r"""(?:(?<!\w)|(?<=\b[bB]))(?P<mark>['"])"""
#: A quotation and its end. One that is not closed, as where Python cuts a long one, goes to the text's end.
#: There is one way to read each sign, so the time is that of one pass.
_QUOTED = r"(?P<quoted>(?:\\.|(?!(?P=mark))[^\\])*+)(?P<end>(?P=mark)|\\?\Z)"
#: A part of an error's text that may repeat a record.
_REPEATED = re.compile(rf"{_MARK}{_QUOTED}|-?\d+\.?\d{{2,}}", re.DOTALL)
#: Python's message about the arguments that a call lacks.
_MISSING = re.compile(r"missing \d+ required (?:positional|keyword-only) arguments?: .{0,1000}")
#: Python's message about an operator that two objects do not have.
_OPERATOR = re.compile(r"'[^\w\s'\"]{1,3}' not supported between instances of ")
#: Words that Python's own errors quote and that come from no record: names of types, of methods, of
#: encodings.
_PYTHONS_OWN = "\n".join(
    [
        *(name for name, found in vars(builtins).items() if isinstance(found, type)),
        *("NoneType", "function", "module", "encode", "decode", "utf-8", "ascii", "latin-1"),
    ]
)


class UnfitResultError(ValueError):
    """A function of the user's gave an impossible number, which may be data and is not repeated."""

    own_words = True  # the text holds no data of a user's


class UnfitValueError(ValueError):
    """A serde does not take a value, or does not read bytes; its text says which rule they break."""

    own_words = True  # texts of libraries in it are without values


class UnfitTypeError(TypeError):
    """A serde is given an object of a type that is not its own."""

    own_words = True  # the text names types


def shown_text(error: BaseException, text: str, *, own: str) -> str:
    """Return an error's text as logs may hold it.

    :param text: the error's text.
    :param own: names and constants of the program, separated by line ends.
    """
    return text if getattr(error, "own_words", False) else without_values(text, own=own)


def without_values(text: str, *, own: str) -> str:
    """Return an error's text without the parts that may come from a record.

    Python's own errors and those of decoders repeat data in quotes and as numbers. So quoted parts and longer
    numbers become ``***`` unless they are whole words of the program: they may come from the record, from a
    table or from a join's other side. Other words that a user's function writes are its own choice. A very
    long text is cut first.

    :param text: the error's text.
    :param own: names and constants of the program, separated by line ends.
    """
    if len(text) > _LONGEST:
        # Digits at the end may begin a number.
        text = text[:_LONGEST].rstrip("0123456789.-")
        return without_values(text, own=own) + _CUT
    missing = _MISSING.search(text)
    known = f"{own}\n{_PYTHONS_OWN}"
    if missing is not None:  # names of parameters
        known += f"\n{missing[0]}"
    operator = _OPERATOR.search(text)
    if operator is not None:
        known += f"\n{operator[0]}"

    @cache
    def is_known(part: str) -> bool:
        return _is_word(part, known)

    def shown(match: re.Match[str]) -> str:
        quoted = match["quoted"] is not None
        part = match["quoted"] if quoted else match[0]
        if part and is_known(part):
            return match[0]
        if not quoted:
            return "***"
        mark = match["mark"]
        return f"{mark}***{mark if match['end'] == mark else ''}"

    return _REPEATED.sub(shown, text)


def _is_word(part: str, text: str) -> bool:
    """Return whether a part stands in a text, with no letter or digit beside it."""
    start = text.find(part)
    while start >= 0:
        end = start + len(part)
        if not _in_word(text[start - 1 : start]) and not _in_word(text[end : end + 1]):
            return True
        start = text.find(part, start + 1)
    return False


def _in_word(sign: str) -> bool:
    return sign.isalnum() or sign == "_"
