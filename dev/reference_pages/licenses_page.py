"""What the page of licenses says: the packages that ``airflow-kstreams[all]`` brings, and the licenses that
their metadata state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_DISTRIBUTION = "airflow-kstreams"
_CLASSIFIER = "License :: "
_NESTED = re.compile(r"\([^)]* (OR|AND) ")
#: Beginnings of licenses under which whoever uses a package may keep their own code to themselves; that of
#: Mozilla asks for the changes of its own files only.
_PERMISSIVE = (
    "0BSD",
    "3-Clause BSD",
    "Apache",
    "Artistic",
    "BSD",
    "CC0",
    "ISC",
    "MIT",
    "Mozilla",
    "PSF",
    "Python Software Foundation",
    "The Unlicense",
    "Zlib",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageLicense:
    """A package and the license that its metadata state.

    :param license: an SPDX expression, or licenses of which the user may choose one, divided by `` OR ``.
    """

    name: str
    license: str

    @property
    def permissive(self) -> bool:
        """Whether the package may be used under licenses that ask nothing of the user's own code; False where
        parts of the expression stand in parentheses, which a person has to look at.
        """
        if _NESTED.search(self.license):
            return False
        choices = self.license.split(" OR ")
        return any(all(part.startswith(_PERMISSIVE) for part in choice.split(" AND ")) for choice in choices)


def package_licenses() -> list[PackageLicense]:
    """Return every package that the extra ``all`` brings, by name.

    :raises PackageNotFoundError: one of them is not installed.
    """
    found = {
        canonicalize_name(each.metadata["Name"]): each for each in _brought(_DISTRIBUTION, {"all"}, set())
    }
    return [PackageLicense(name=name, license=license_of(each)) for name, each in sorted(found.items())]


def license_of(package: Distribution) -> str:
    """Return the license that a package's metadata state; empty if they state none."""
    stated = package.metadata
    if "License-Expression" in stated:
        return stated["License-Expression"]
    classified = [
        name.rpartition("::")[2].strip()
        for name in stated.get_all("Classifier") or ()
        if name.startswith(_CLASSIFIER)
    ]
    if not classified and "License" in stated:
        return stated["License"].partition("\n")[0]
    return " OR ".join(sorted(classified))


def _brought(name: str, extras: set[str], seen: set[tuple[str, str]]) -> Iterator[Distribution]:
    """Yield the packages that a package needs with these extras, and those that they need."""
    for line in distribution(name).requires or ():
        needed = Requirement(line)
        wanted = needed.marker is None or any(
            needed.marker.evaluate({"extra": extra}) for extra in extras | {""}
        )
        asked = (canonicalize_name(needed.name), ",".join(sorted(needed.extras)))
        if not wanted or asked in seen:
            continue
        seen.add(asked)
        if asked[0] != _DISTRIBUTION:
            yield distribution(needed.name)
        yield from _brought(needed.name, needed.extras, seen)
