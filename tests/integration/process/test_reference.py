"""What the docstrings of everything public must say, and that the committed pages are written from them.

Rule: something public has a docstring. The fields of a docstring name parameters that there are. And whoever
has to pass something sees its shape: in ``:param`` fields, in an example, anywhere in these docstrings, that
makes the call, or, parameter by parameter, in a text that names it or a type that is public itself. Of a
protocol, the class says what its methods take. Constructors that only this package calls need no more than a
docstring.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import griffe
import pytest

from dev.reference_pages.docstrings import Docstring, docstring_of
from dev.reference_pages.entries import Entries, constructor_parameters, fields_described, is_protocol
from dev.reference_pages.markup import Markup, Place, completed, slug
from dev.reference_pages.pages import FOLDER, Reference, differences, write
from dev.reference_pages.public_api import (
    AIRFLOW_SIDE,
    ROOT,
    comment_above,
    error_classes,
    load_package,
    module_at,
    public_members,
    public_names,
)

_PACKAGE = load_package()
_PUBLIC = {name.path: name for name in public_names(_PACKAGE)}
_PAGES = Reference(_PACKAGE).pages()
_ENTRIES = Entries(Markup({}, ""), _PUBLIC)
_ROLES_OF_AIRFLOW = ("Operator", "Sensor", "Trigger")


def _with_members(target: griffe.Object) -> Iterator[griffe.Object]:
    yield target
    if isinstance(target, griffe.Class):
        yield from public_members(target, frozenset(_PUBLIC))


_EXAMPLES = [
    example
    for name in _PUBLIC.values()
    for documented in _with_members(name.target)
    for example in docstring_of(documented).code
]


# == docstrings


@pytest.mark.parametrize("path", _PUBLIC)
def test_docstrings_say_what_users_need_when_a_name_is_public(path: str) -> None:
    target = _PUBLIC[path].target

    assert [complaint for each in _with_members(target) for complaint in _complaints(each)] == []


def test_complaints_are_specific_when_a_docstring_lacks_something(tmp_path: Path) -> None:
    package = tmp_path / "airflow_kstreams"
    package.mkdir()
    (package / "__init__.py").write_text(
        "def silent(x): ...\n"
        'def stale(x):\n    """Take x.\n\n    :param y: gone.\n    """\n'
        'def bare(x):\n    """Take something."""\n'
        'def field(x):\n    """Take something.\n\n    :param x: what.\n    """\n'
        'def named(x):\n    """Take an x."""\n'
        'def optional(x=1):\n    """Do it."""\n',
        encoding="utf-8",
    )
    module = load_package(tmp_path)

    assert [_complaints(function) for function in module.functions.values()] == [
        ["airflow_kstreams.silent has no docstring"],
        ["airflow_kstreams.stale describes y, which is no parameter"],
        ["airflow_kstreams.bare has neither :param fields nor an example that calls it"],
        [],
        [],
        [],
    ]


def test_classes_users_name_are_exported_when_airflow_runs_them() -> None:
    missing = [
        cls.path
        for path in AIRFLOW_SIDE
        if (package := module_at(_PACKAGE, path)) is not None
        for module in package.modules.values()
        for cls in module.classes.values()
        if isinstance(cls, griffe.Class) and cls.name.endswith(_ROLES_OF_AIRFLOW) and cls.path not in _PUBLIC
    ]

    assert missing == [], "add them to the __all__ of their modules"


def test_recovery_is_written_down_when_an_error_is_raised_by_itself() -> None:
    grouping = {"KStreamsError", "TaskError", "ReportedError"}

    for name in {each.name for each in error_classes(_PACKAGE)} - grouping:
        line = rf"^\| \[KS-[A-Z]+-\d{{3}}\]\(\S+\) \| \[`{name}`\]\(#{name.lower()}\) \| \w+ \| ."
        assert re.search(line, _PAGES["errors.md"], re.MULTILINE), name


def _complaints(target: griffe.Object) -> list[str]:
    docstring = docstring_of(target)
    if not docstring.text and not (isinstance(target, griffe.Attribute) and comment_above(target)):
        return [f"{target.path} has no docstring"]
    known = {parameter.name for parameter in _parameters(target)}
    if isinstance(target, griffe.Class):
        known |= target.attributes.keys()  # errors describe their fields
    complaints = [
        f"{target.path} describes {name}, which is no parameter"
        for name in docstring.parameters
        if name not in known
    ]
    if not complaints and not _is_shown(target, docstring):
        complaints.append(f"{target.path} has neither :param fields nor an example that calls it")
    return complaints


def _is_shown(target: griffe.Object, docstring: Docstring) -> bool:
    if docstring.parameters or (isinstance(target.parent, griffe.Class) and is_protocol(target.parent)):
        return True
    if isinstance(target, griffe.Class):
        to_pass = _required([*_ENTRIES.constructor(target)])
        if fields_described(target):
            return True
    else:
        to_pass = _required(_parameters(target))
    words = {*re.findall(r"\w+", docstring.text)}
    if all(parameter.name in words or _has_public_type(parameter) for parameter in to_pass):
        return True
    called = re.compile(rf"\b{target.name}\(")
    return any(called.search(example) for example in _EXAMPLES)


def _required(parameters: Sequence[griffe.Parameter]) -> list[griffe.Parameter]:
    return [parameter for parameter in parameters if parameter.default is None]


def _parameters(target: griffe.Object) -> list[griffe.Parameter]:
    match target:
        case griffe.Class():
            parameters = constructor_parameters(target)
        case griffe.Function():
            parameters = [*target.parameters]
        case _:
            parameters = []
    return [parameter for parameter in parameters if parameter.name not in ("self", "cls")]


def _has_public_type(parameter: griffe.Parameter) -> bool:
    annotation = parameter.annotation
    return isinstance(annotation, griffe.Expr) and annotation.canonical_path in _PUBLIC


# == pages


def test_committed_pages_are_up_to_date_when_docstrings_changed() -> None:
    assert differences(_PAGES) == [], "run dev/reference"


def page(text: str) -> str:
    """Return a page as the reference writes it."""
    return f"<!-- Written by dev/reference from the docstrings: change those. -->\n\n{text}\n"


def test_differences_name_each_page_and_why_when_pages_are_stale(tmp_path: Path) -> None:
    write({"same.md": page("1"), "changed.md": page("2"), "old.md": page("3")}, tmp_path)
    (tmp_path / "by-hand.md").write_text("5\n")

    stale = differences({"same.md": page("1"), "changed.md": page("two"), "new.md": page("4")}, tmp_path)

    assert stale == ["changed.md: differs", "new.md: missing", "old.md: no page of the reference"]


def test_pages_replace_what_was_there_when_written(tmp_path: Path) -> None:
    write({"old.md": page("3"), "changed.md": page("2")}, tmp_path)
    (tmp_path / "by-hand.md").write_text("5\n")

    write({"changed.md": page("two")}, tmp_path)

    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == {"changed.md": page("two"), "by-hand.md": "5\n"}


def test_pages_are_the_same_when_written_again() -> None:
    assert Reference(load_package()).pages() == _PAGES


@pytest.mark.parametrize("page", sorted(_PAGES))
def test_links_lead_somewhere_when_a_page_is_read(page: str) -> None:
    by_hand = {path.name for path in FOLDER.glob("*.md")} - _PAGES.keys()
    lost = [
        f"{file}#{anchor}"
        for file, anchor in re.findall(r"\]\(([\w.]*)#?([\w-]*)\)", _PAGES[page])
        if file not in by_hand
        if (target := file or page) not in _PAGES or (anchor and anchor not in _anchors(_PAGES[target]))
    ]

    assert lost == []


@pytest.mark.parametrize("page", sorted(_PAGES))
def test_headings_differ_when_a_page_has_several(page: str) -> None:
    anchors = _anchors(_PAGES[page])

    assert len(anchors) == len({*anchors})


@pytest.mark.parametrize("path", sorted(_PUBLIC))
def test_every_public_name_has_a_heading_when_pages_are_written(path: str) -> None:
    name = _PUBLIC[path].name

    # The page for who comes from Java has headings for Java's classes, and that of commands for their groups.
    pages = [text for page, text in _PAGES.items() if page not in ("from-java.md", "commands.md")]
    called_so = sum(each.name == name for each in _PUBLIC.values())
    assert sum(slug(name) in _anchors(text) for text in pages) == called_so


def test_pages_say_nothing_of_the_machine_when_written() -> None:
    assert [page for page, text in _PAGES.items() if str(ROOT) in text or "/home/" in text] == []


def _anchors(text: str) -> list[str]:
    return [slug(heading) for heading in re.findall(r"^#+ (.*)$", _without_code(text), re.MULTILINE)]


def _without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


# == from reST to Markdown


def test_parts_of_a_docstring_are_told_apart_when_fields_come_before_the_example() -> None:
    docstring = docstring_of(
        _function(
            "Do it, e.g. ``so``. Then rest.\n\nMore.\n\n"
            ":param a: the\n    first.\n:return: b.\n:raises KeyError: no a.\n\n"
            ">>> f(1)\n2\n\nand\n\n>>> f(2)\n3"
        )
    )

    assert docstring == Docstring(
        text="Do it, e.g. ``so``. Then rest.\n\nMore.",
        parameters={"a": "the\nfirst."},
        returns="b.",
        raises=[("KeyError", "no a.")],
        examples=[">>> f(1)\n2", "and", ">>> f(2)\n3"],
    )
    assert docstring.summary == "Do it, e.g. ``so``."


def test_prose_becomes_markdown_when_it_holds_roles_literals_and_blocks() -> None:
    text = (
        "See :meth:`other` and ``KStream.map``, not ``<b>`` * or <i>, **so**.\n\n"
        "Like this::\n\n    if x:\n        y()\n\nEnd."
    )
    stream = _PACKAGE["streams.kstream.kstream.KStream"]
    places = {
        f"{stream.path}.other": Place(label="KStream.other", page="streams.md"),
        f"{stream.path}.map": Place(label="KStream.map", page="streams.md"),
    }

    markdown = Markup(places, "tables.md").prose(text, stream)

    assert markdown == (
        "See [`KStream.other`](streams.md#kstreamother) and [`KStream.map`](streams.md#kstreammap), "
        "not `<b>` \\* or \\<i>, **so**.\n\nLike this:\n\n```python\nif x:\n    y()\n```\n\nEnd."
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "kstream.KStream.filter",
            "`Callable[[K, V], bool]` or `InContext[K, V, bool]`",
        ),
        ("kstream.KStream.send_to", "`str`"),
        ("grouped.KGroupedStream.count", "`str` or [`StoreSpec[K, int]`](stores.md#storespec) or `None`"),
    ],
)
def test_types_are_spelt_out_and_linked_when_they_are_aliases(path: str, expected: str) -> None:
    spec = "airflow_kstreams.streams.graph.store_specs.StoreSpec"
    markup = Markup({spec: Place(label="StoreSpec", page="stores.md")}, "streams.md")
    function = _PACKAGE[f"streams.kstream.{path}"]
    assert isinstance(function, griffe.Function)

    assert markup.annotation(_parameters(function)[0].annotation) == expected


def test_example_gets_its_imports_when_it_leaves_them_out() -> None:
    modules = {"KStream": "a.streams", "serdes": "a.streams", "Driver": "a.testing"}

    call = ">>> import x\n>>> serdes.f(Driver(x, y=[KStream for KStream in ()]))\n1"

    assert completed(f">>> from a.streams import Store\n{call}", modules) == (
        f">>> from a.streams import Store, serdes\n>>> from a.testing import Driver\n{call}"
    )


def _function(docstring: str) -> griffe.Function:
    function = griffe.Function("f")
    function.docstring = griffe.Docstring(docstring, parent=function)
    return function
