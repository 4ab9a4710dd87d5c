"""A templated field that was refused is given as the error says, and is taken."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_kstreams.hooks import rendered
from airflow_kstreams.hooks.rendered import number
from airflow_kstreams.streams.errors import ConfigError
from tests.support.remedies import walked

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

FIELDS = [
    walked("rendered.text", rendered.text, "", "orders", "orders"),
    walked("rendered.optional_text: give {}=", rendered.optional_text, 20.5, "20.5", "20.5"),
    walked("rendered.optional_text: {_LEAVE_OUT}", rendered.optional_text, "None", "", ""),
    walked("rendered.number.read", number(1), "0", "1", 1),
    walked("rendered.rate", rendered.rate, "fast", 1000, 1000.0),
    walked(
        "rendered.topic_names",
        rendered.topic_names,
        "['orders', 'customers']",
        "orders, customers",
        ("orders", "customers"),
    ),
    walked(
        "rendered.json_object",
        rendered.json_object,
        "{'name': 'value'}",
        '{"name": "value"}',
        {"name": "value"},
    ),
    walked("rendered.moment", rendered.moment, "noon", "2026-01-31T12:00:00+00:00", NOON),
    walked(
        "rendered.moment_with_zone",
        rendered.moment_with_zone,
        "2026-01-31T12:00:00",
        "2026-01-31T12:00:00+00:00",
        NOON,
    ),
    walked("rendered.span", rendered.span, "a while", "PT15M", timedelta(minutes=15)),
]


@pytest.mark.parametrize(("read", "fault", "told", "wanted"), FIELDS)
def test_field_is_taken_as_the_error_says(
    read: Callable[[str, Any], object], fault: object, told: object, wanted: object
) -> None:
    with pytest.raises(ConfigError):
        read("field", fault)
    assert read("field", told) == wanted
