"""A pytest plugin for tests that make errors as the reference shows them (docs/reference/errors.md).

``@pytest.mark.error_example("KS-RUN-002")``: the test fails unless it saw the error with this code, with the
cause and the remedy that ``dev/reference_pages/error_examples.toml`` has for it, up to numbers and files.
"""

from __future__ import annotations

import re
from collections.abc import Generator

import pytest

#: What differs from run to run: the file of the application, and numbers (lines, ports, sizes).
_FILE = re.compile(r"[\w./+-]*\w\.py\b")
_NUMBER = re.compile(r"\d[\d,.]*")


def _shape(text: str) -> str:
    return _NUMBER.sub("0", _FILE.sub("APP.py", text))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that carries the mark and made no error as the reference has it."""
    codes = [code for mark in item.iter_markers("error_example") for code in mark.args]
    if not codes:
        return (yield)
    from airflow_kstreams.streams.errors import KStreamsError
    from dev.reference_pages.errors_page import error_examples

    made: list[KStreamsError] = []
    first = KStreamsError.__post_init__

    def note(error: KStreamsError) -> None:
        first(error)
        made.append(error)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(KStreamsError, "__post_init__", note)
        yield
    seen = {(each.code, _shape(each.cause), _shape(each.fix)) for each in made}
    for code in codes:
        example = error_examples()[code]
        if (code, _shape(example.cause), _shape(example.fix)) not in seen:
            pytest.fail(f"no error was {code} as the reference has it; these were made: {sorted(seen)}")
