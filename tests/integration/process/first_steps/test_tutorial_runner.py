"""``docs/tutorials/run_tutorial.py`` tells what differs from what may differ, on pages of a few lines."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from tests.support.fresh_python import ROOT


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script as a module, with its page and pictures in a folder of the test."""
    spec = importlib.util.spec_from_file_location(
        "run_tutorial", ROOT / "docs" / "tutorials" / "run_tutorial.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run_tutorial", module)
    spec.loader.exec_module(module)
    (tmp_path / "images").mkdir()
    monkeypatch.setattr(module, "PAGE", tmp_path / "tutorial.md")
    monkeypatch.setattr(sys, "argv", ["run_tutorial.py"])
    # The broker that it stops at the end is not there; the command that would stop it need not be, either.
    monkeypatch.setattr(sys, "executable", "/usr/bin/true")
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: None)
    monkeypatch.setattr(module.signal, "signal", lambda *_: None)
    yield module


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("failed 12 s ago", "failed just now"),
        ("took 3.5 s, at 2026-01-05 10:00:00", "took 1 min 37 s, at 2027-11-29 23:59:59 UTC"),
        ("broker at 127.0.0.1:9092, data in /home/ann/x", "broker at 127.0.0.1:19092, data in /tmp/y"),
        ("Kafka 4.2.1, process 17 of laptop", "Kafka 4.3.0, process 4711 of vm"),
        ("orders-0@14/2KF4xUQbTA2JVG0WO/JAdA", "orders-0@14/abcdefghijklmnopqrs+-_"),
        ("a line that is\n  broken here", "a line\n  that is broken here"),
    ],
)
def test_nothing_differs_but_what_may(runner: ModuleType, page: str, printed: str) -> None:
    assert runner.difference(page, printed) == ""


@pytest.mark.parametrize(
    ("page", "printed"),
    [("12 records in, 4 out", "12 records in, 5 out"), ("orders: 12 read\n", ""), ("a\nb", "b\na")],
)
def test_counts_words_and_order_may_not_differ(runner: ModuleType, page: str, printed: str) -> None:
    assert "+++ printed" in runner.difference(page, printed)


_PAGE = """\
```console
$ mkdir shop && cd shop
$ cat >shown.svg <<'END'
> <svg>
>
>   <text>{shown}</text>
> </svg>
> END
$ grep -c text shown.svg
{count}
```

![A picture](images/tutorial_shown.svg)
"""


@pytest.mark.parametrize(
    ("count", "shown", "code", "says"),
    [
        (1, "orders", 0, "every step prints what the page says"),
        (2, "orders", 1, "tutorial.md:9 says something else"),
        (1, "flights", 1, "tutorial_shown.svg shows something else"),
    ],
)
def test_a_step_or_a_picture_that_differs_is_named(
    runner: ModuleType, count: int, shown: str, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.PAGE.write_text(_PAGE.format(count=count, shown=shown))
    (runner.PAGE.parent / "images" / "tutorial_shown.svg").write_text("<svg>\n<text>orders</text>\n</svg>")

    assert runner.main() == code

    assert says in capsys.readouterr().out


def test_a_step_that_fails_in_silence_is_named(
    runner: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.PAGE.write_text("```console\n$ true\n$ false >log 2>&1\n```\n")

    assert runner.main() == 1

    assert "exit code 1" in (printed := capsys.readouterr().out)
    assert "tutorial.md:3 fails" in printed


def test_page_and_pictures_are_written_when_asked(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.PAGE.write_text(_PAGE.format(count="?", shown="orders"))
    monkeypatch.setattr(sys, "argv", ["run_tutorial.py", "--write"])

    runner.main()

    assert runner.PAGE.read_text() == _PAGE.format(count=1, shown="orders")
    assert "<text>orders</text>" in (runner.PAGE.parent / "images" / "tutorial_shown.svg").read_text()


def test_what_a_step_left_in_the_background_ends_with_the_run(runner: ModuleType, tmp_path: Path) -> None:
    runner.PAGE.write_text(f"```console\n$ sleep 300 &\n$ echo $! >{tmp_path}/pid\n```\n")

    runner.main()

    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
