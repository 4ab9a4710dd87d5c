"""Puts the pages together: one per area, settings, errors, commands, Java's names, licenses, and the index;
and the schemas of the commands' JSON beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import griffe
import jinja2

from dev.reference_pages.areas import AREAS, Area, area_of
from dev.reference_pages.commands_page import CommandEntry, command_entries
from dev.reference_pages.entries import Entries
from dev.reference_pages.errors_page import error_entries
from dev.reference_pages.java_page import java_entries, java_neighbours
from dev.reference_pages.json_schemas import SCHEMAS, json_schemas
from dev.reference_pages.licenses_page import package_licenses
from dev.reference_pages.markup import Markup, Place, slug
from dev.reference_pages.public_api import (
    ROOT,
    PublicName,
    error_classes,
    hidden_bases,
    public_members,
    public_names,
)
from dev.reference_pages.settings_page import (
    application_settings,
    client_defaults,
    owned_by_engine,
    running_code,
    sending,
)

#: Where the pages are.
FOLDER = ROOT / "docs" / "reference"

#: How each page that is written here begins.
_WRITTEN = "<!-- Written by dev/reference "
#: Templates leave more than one where a part is missing.
_BLANK_LINES = re.compile(r"\n{3,}")
_TEMPLATES = Path(__file__).parent / "templates"
_INDEX, _SETTINGS, _ERRORS, _JAVA = "index.md", "settings.md", "errors.md", "from-java.md"
_LICENSES, _COMMANDS = "licenses.md", "commands.md"


class Reference:
    """The reference of a package's source.

    :param package: as :func:`load_package` gives it.
    """

    def __init__(self, package: griffe.Module) -> None:
        self._package = package
        self._public = {name.path: name for name in public_names(package)}
        self._places = dict(self._placed())
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_TEMPLATES),
            autoescape=False,  # noqa: S701  (Markdown, from our own source)
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        self._templates.filters["slug"] = slug

    def pages(self) -> dict[str, str]:
        """Return the text of each page and schema by its file name below the folder."""
        shown = {area.page: names for area in AREAS if (names := self._names_on(area))}
        areas = [area for area in AREAS if area.page in shown]
        pages = {area.page: self._area_page(area, shown[area.page]) for area in areas}
        pages[_SETTINGS] = self._settings_page()
        pages[_ERRORS] = self._errors_page()
        pages[_JAVA] = self._rendered("java.md.j2", entries=java_entries(), neighbours=java_neighbours())
        pages[_COMMANDS] = self._rendered("commands.md.j2", commands=_by_group(command_entries()))
        pages[_LICENSES] = self._rendered("licenses.md.j2", packages=package_licenses())
        contents = {
            area.page: [Markup(self._places, _INDEX).link(name.path) for name in shown[area.page]]
            for area in areas
        }
        pages[_INDEX] = self._rendered("index.md.j2", areas=areas, contents=contents)
        return pages | json_schemas()

    def _placed(self) -> Iterator[tuple[str, Place]]:
        errors = {each.path for each in error_classes(self._package)}
        for name in self._public.values():
            page = _ERRORS if name.path in errors else area_of(name.path)[0].page
            yield name.path, Place(label=name.name, page=page)
            if isinstance(name.target, griffe.Class) and page != _ERRORS:
                for member in public_members(name.target, frozenset(self._public)):
                    # A member inherited by two classes is found at the first.
                    yield f"{name.path}.{member.name}", Place(label=f"{name.name}.{member.name}", page=page)
                for base in hidden_bases(name.target, frozenset(self._public)):
                    yield base.path, Place(label=name.name, page=page)

    def _names_on(self, area: Area) -> list[PublicName]:
        names = [
            (area_of(name.path)[1], name.target.module.path, name.target.lineno or 0, name)
            for name in self._public.values()
            if self._places[name.path].page == area.page and not _is_shown_with_module(name)
        ]
        return [name for *_, name in sorted(names, key=lambda placed: placed[:-1])]

    def _area_page(self, area: Area, names: Sequence[PublicName]) -> str:
        entries = Entries(Markup(self._places, area.page), self._public)
        return self._rendered("area.md.j2", area=area, entries=[entries.entry(name) for name in names])

    def _settings_page(self) -> str:
        return self._rendered(
            "settings.md.j2",
            settings=application_settings(),
            owned=owned_by_engine(self._package),
            running_code=running_code(self._package),
            sending=sending(self._package),
            client_defaults=client_defaults(self._package),
        )

    def _errors_page(self) -> str:
        errors = error_entries(self._package, Markup(self._places, _ERRORS))
        return self._rendered("errors.md.j2", errors=errors)

    def _rendered(self, template: str, **values: object) -> str:
        text = self._templates.get_template(template).render(**values)
        return f"{_BLANK_LINES.sub(chr(10) * 2, text).strip()}\n"


def _is_shown_with_module(name: PublicName) -> bool:
    return isinstance(name.target, griffe.Function) and "." in name.name


def _by_group(commands: Sequence[CommandEntry]) -> dict[str, list[CommandEntry]]:
    groups: dict[str, list[CommandEntry]] = {}
    for command in commands:
        groups.setdefault(command.group, []).append(command)
    return groups


def differences(pages: Mapping[str, str], folder: Path = FOLDER) -> list[str]:
    """Return the pages that are missing, differ, or should not be there, sorted; a reason with each.

    :param pages: text by file name, as they should be.
    """
    found = {name: (folder / name).read_text(encoding="utf-8") for name in _files(folder)}
    reasons = dict.fromkeys(pages.keys() - found.keys(), "missing")
    reasons |= dict.fromkeys(found.keys() - pages.keys(), "no page of the reference")
    reasons |= {name: "differs" for name, text in pages.items() if found.get(name, text) != text}
    return [f"{name}: {reason}" for name, reason in sorted(reasons.items())]


def write(pages: Mapping[str, str], folder: Path = FOLDER) -> None:
    """Make the folder hold these pages and no others."""
    for name in _files(folder):
        if name not in pages:
            (folder / name).unlink()
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _files(folder: Path) -> list[str]:
    """Return the written pages and schemas of a folder, by their names below it: others stand beside them."""
    pages = (path for path in folder.glob("*.md") if path.read_text(encoding="utf-8").startswith(_WRITTEN))
    return [str(path.relative_to(folder)) for path in (*pages, *folder.glob(f"{SCHEMAS}/*.json"))]
