"""Names of application settings."""

from __future__ import annotations

import pytest

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import ApplicationSettings


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("commit.intervall.ms", "commit.interval.ms"),
        ("processing.garantee", "processing.guarantee"),
        ("lease_ms", "lease.ms"),
    ],
)
def test_nearest_name_is_told_when_a_setting_is_misspelt(misspelt: str, meant: str) -> None:
    with pytest.raises(ConfigError, match="unknown setting") as caught:
        ApplicationSettings.parse("app", {misspelt: "1"})
    assert caught.value.fix == f"did you mean {meant!r}?"
