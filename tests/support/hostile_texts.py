"""Texts that take a regular expression as long as they can, made from the expression itself.

A match is slow where a part that repeats can be read in several ways, or where every beginning of a match
runs on to the end of the text. So each repeated part of an expression makes texts of its own: what leads to
it, then the part over and over, then an end that nothing fits; and leads and parts in turns.

Run as a program it searches in such texts: one JSON line on its standard input says which expression of which
module, and each line that it prints names the text that is searched next.
"""

from __future__ import annotations

import importlib
import json
import re
import re._compiler as compiler  # type: ignore[import-not-found]
import re._constants as kinds  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

#: Length of a text, characters.
SIZE = 1 << 20
#: No expression matches it as a whole, and most fail on it.
_END = "\n\x00!"
#: Characters that a class may hold, and how many of them, and of the forms of a part, are tried.
_ALPHABET = "a0 A-_.:\\'\"/(["
_FORMS = 3
_REPEATS = (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT)


class HostileTexts:
    """The texts for one expression.

    :param pattern: the expression.
    """

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        self._tree = parser.parse(pattern.pattern, pattern.flags)
        literals = {chr(av) for op, av in _nodes(self._tree) if op is kinds.LITERAL}
        self._alphabet = [*dict.fromkeys((*sorted(literals & set(_ALPHABET)), *_ALPHABET, *sorted(literals)))]
        self._groups: dict[int, str] = {}

    def __iter__(self) -> Iterator[str]:
        """Yield texts of ``SIZE`` characters."""
        seen = set()
        for lead, part in self._repeated(self._tree, ""):
            for always, again in ((lead, part), ("", lead + part)):
                if again and (always, again) not in seen:
                    seen.add((always, again))
                    yield always + again * ((SIZE - len(always) - len(_END)) // len(again)) + _END

    def _repeated(self, items: Any, lead: str) -> Iterator[tuple[str, str]]:
        """Yield each repeated part with what leads to it."""
        for op, av in items:
            if op in _REPEATS:
                most, inner = av[1], av[2]
                if most > 1:
                    yield from ((lead, form) for form in self._forms(inner))
                yield from self._repeated(inner, lead)
            else:
                for inner in _inside(op, av):
                    yield from self._repeated(inner, lead)
            lead += self._forms([(op, av)])[0]

    def _forms(self, items: Any) -> list[str]:
        """Return texts that a sequence of nodes matches, the simplest first."""
        each = [self._forms_of(op, av) for op, av in items]
        simplest = [forms[0] for forms in each]
        found = {"".join(simplest): None}
        for place, forms in enumerate(each):
            for form in forms[1:]:
                found["".join((*simplest[:place], form, *simplest[place + 1 :]))] = None
        return [*found][:_FORMS]

    def _forms_of(self, op: Any, av: Any) -> list[str]:
        if op is kinds.LITERAL:
            return [chr(av)]
        if op in (kinds.NOT_LITERAL, kinds.ANY, kinds.IN):
            single = parser.SubPattern(self._tree.state, [(op, av)])
            matches = compiler.compile(single).fullmatch
            return [sign for sign in (*self._alphabet, *map(chr, range(256))) if matches(sign)][:_FORMS]
        if op in _REPEATS:
            return [form * min(max(av[0], 1), SIZE // 1000) for form in self._forms(av[2])]
        if op is kinds.GROUPREF:
            return [self._groups.get(av, "")]
        forms = [form for inner in _inside(op, av) for form in self._forms(inner)]
        if op is kinds.SUBPATTERN and av[0] is not None:
            self._groups[av[0]] = forms[0]
        return forms if forms and op not in (kinds.ASSERT, kinds.ASSERT_NOT) else [""]


def _inside(op: Any, av: Any) -> list[Any]:
    """Return the sequences inside a node that is no repetition."""
    if op is kinds.SUBPATTERN:
        return [av[3]]
    if op is kinds.BRANCH:
        return list(av[1])
    if op in (kinds.ASSERT, kinds.ASSERT_NOT):
        return [av[1]]
    return [av] if op is kinds.ATOMIC_GROUP else []


def _nodes(items: Any) -> Iterator[tuple[Any, Any]]:
    for op, av in items:
        yield op, av
        for inner in [av[2]] if op in _REPEATS else _inside(op, av):
            yield from _nodes(inner)


class Search(NamedTuple):
    """A search of a module.

    :param module: the module; empty if the code needs no name of it.
    :param code: Python that makes the expression, with the names of the module.
    :param flags: those of the expression, if the code makes a text.
    :param method: the pattern's method that searches.
    """

    module: str
    code: str
    flags: int
    method: str

    def pattern(self) -> re.Pattern[Any]:
        """Return the expression, of text or bytes."""
        names = vars(importlib.import_module(self.module)) if self.module else {"re": re}
        made = eval(self.code, {**names})
        return made if isinstance(made, re.Pattern) else re.compile(made, self.flags)

    def run(self, text: str) -> None:
        """Search a text."""
        pattern = self.pattern()
        searched = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
        if self.method in ("sub", "subn"):
            pattern.sub(searched[:0], searched)
        elif self.method == "finditer":
            deque(pattern.finditer(searched), maxlen=0)
        else:
            getattr(pattern, self.method)(searched)


def _main() -> None:
    for name, given in json.loads(sys.stdin.readline()).items():
        search = Search(**given)
        for text in HostileTexts(search.pattern()):
            print(f"{name} in {text[:60]!r}...{text[-20:]!r}", flush=True)
            search.run(text)


if __name__ == "__main__":
    _main()
