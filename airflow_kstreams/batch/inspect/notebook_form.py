"""Shows values in notebooks as HTML. Packages above register the forms; a value does not know its own."""

from __future__ import annotations

import html
from functools import singledispatch

import msgspec

from airflow_kstreams.streams.printable import printable


@singledispatch
def notebook_form(value: object) -> str:
    """Return a value as HTML; as text where nothing is registered for its type."""
    return f"<pre>{html.escape(printable(str(value)))}</pre>"


class ShownInNotebooks(msgspec.Struct, frozen=True):
    """A value that a notebook shows as tables, once ``airflow_kstreams.inspect`` is imported."""

    def _repr_html_(self) -> str:
        return notebook_form(self)
