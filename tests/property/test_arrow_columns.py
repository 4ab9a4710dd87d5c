"""Columns are those of ``pyarrow.array``, whatever the objects are."""

from __future__ import annotations

import math
import struct
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams.kstream.operators import arrow_columns
from airflow_kstreams.streams.kstream.operators.arrow_columns import ArrowColumns
from tests.support.examples import examples

LONG = st.integers(-(2**63), 2**63 - 1)
KINDS: list[st.SearchStrategy[Any]] = [
    st.binary(max_size=5),
    st.text(alphabet="abc", max_size=5),
    st.text(max_size=5),
    st.text(alphabet=st.characters(categories=["Cs", "Ll"]), max_size=3),
    LONG,
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.booleans(),
    st.none(),
    st.lists(LONG, max_size=2),
    st.dictionaries(st.sampled_from("ab"), LONG, max_size=2),
    st.dates(),
]
TYPES = [
    None,
    pa.binary(),
    pa.large_binary(),
    pa.string(),
    pa.large_string(),
    pa.int64(),
    pa.int8(),
    pa.uint64(),
    pa.float64(),
    pa.float32(),
    pa.bool_(),
    pa.null(),
    pa.list_(pa.int64()),
]


def of_kinds(*kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.one_of(*kinds), min_size=1, max_size=20)


#: Objects of one kind, with None or without, or of several kinds.
OBJECTS = st.one_of(
    st.sampled_from(KINDS).flatmap(of_kinds),
    st.sampled_from(KINDS).flatmap(lambda kind: of_kinds(kind, st.none())),
    of_kinds(*KINDS),
)


def outcome(make: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return make(*arguments, **options)
    except Exception as error:
        return type(error), str(error)


def bits(column: Any) -> Any:
    """Return what tells columns apart: NaN equals nothing, and 0.0 equals -0.0."""
    if not isinstance(column, pa.Array):
        return column
    return column.type, column.null_count, list(map(exact, column.to_pylist()))


def exact(value: Any) -> Any:
    return struct.pack("d", value) if isinstance(value, float) else (type(value), value)


@settings(max_examples=examples(500), deadline=None)  # the first one imports pandas, which takes seconds
@given(objects=OBJECTS, wanted=st.sampled_from(TYPES))
@example(objects=[-0.0, math.nan, math.inf, None], wanted=None)
@example(objects=[True, 1], wanted=None)
@example(objects=[b"", None, b"\xff"], wanted=pa.binary())
def test_column_is_pyarrows_own_when_it_is_made_of_objects(objects: list[Any], wanted: Any) -> None:
    with patch.object(arrow_columns, "sys", SimpleNamespace(modules={})):  # as before pandas is imported
        made = outcome(ArrowColumns(pa).column, objects, wanted)
    assert bits(made) == bits(outcome(pa.array, objects, type=wanted))
    if isinstance(made, pa.Array):
        made.validate(full=True)
