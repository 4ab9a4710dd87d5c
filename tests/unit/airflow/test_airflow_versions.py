"""Names of Airflow that earlier releases lack: here they are hidden, as 3.1 and 3.2 hide them."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from airflow_kstreams.hooks import airflow_versions
from airflow_kstreams.hooks.airflow_versions import refuse_before
from airflow_kstreams.streams.errors import ConfigError

_EXCEPTIONS = [name for name in airflow_versions.__all__ if name.startswith(("Airflow", "TaskDefer"))]


def made_again() -> Any:
    """Import the module a second time, under another name."""
    spec = importlib.util.spec_from_file_location("bridged", airflow_versions.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in(name: str, **content: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(content)
    return module


def test_exceptions_are_those_of_the_core_when_the_sdk_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    core = {name: type(name, (Exception,), {}) for name in _EXCEPTIONS}
    monkeypatch.setattr("airflow.sdk.exceptions", stand_in("airflow.sdk.exceptions"))
    monkeypatch.setattr("airflow.exceptions", stand_in("airflow.exceptions", **core))

    bridged = made_again()

    assert {name: getattr(bridged, name) for name in _EXCEPTIONS} == core


def test_settings_are_those_of_the_core_when_the_sdk_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = object()
    monkeypatch.setitem(sys.modules, "airflow.sdk.configuration", None)
    monkeypatch.setitem(sys.modules, "airflow.configuration", stand_in("airflow.configuration", conf=conf))

    assert airflow_versions.airflow_conf() is conf


def test_timetable_is_that_of_the_core_when_the_sdk_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    core = stand_in("interval", CronDataIntervalTimetable=lambda cron, timezone: (cron, timezone))
    monkeypatch.setitem(sys.modules, "airflow.sdk", stand_in("airflow.sdk"))
    monkeypatch.setattr("airflow.timetables.interval", core, raising=False)

    assert airflow_versions.cron_intervals("@hourly", "UTC") == ("@hourly", "UTC")


@pytest.fixture
def before_3_3(monkeypatch: pytest.MonkeyPatch) -> Any:
    log = stand_in("airflow.sdk.log", mask_secret=airflow_versions.mask_secret)
    monkeypatch.setitem(sys.modules, "airflow.sdk.log", log)
    return made_again()


def test_secret_is_masked_here_and_by_the_supervisor_when_the_sdk_cannot_wait_for_it(
    before_3_3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk._shared.secrets_masker import redact
    from airflow.sdk.execution_time import task_runner

    told: list[str] = []

    async def asend(message: Any) -> None:
        told.append(message.value)

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(asend=asend), raising=False)

    asyncio.run(before_3_3.amask_secret("of-the-bridge-alone"))

    assert told == ["of-the-bridge-alone"]
    assert "of-the-bridge" not in str(redact("logged: of-the-bridge-alone"))


def test_secret_is_masked_here_when_there_is_no_supervisor(before_3_3: Any) -> None:
    from airflow.sdk._shared.secrets_masker import redact

    asyncio.run(before_3_3.amask_secret("of-a-test-alone"))

    assert "of-a-test" not in str(redact("logged: of-a-test-alone"))


@pytest.mark.remedy("airflow_versions.refuse_before")
def test_part_is_refused_when_airflow_is_older_than_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> None:
        refuse_before("3.3", what="FinishedRunsTrigger", needs="shared streams", instead="wait with a sensor")

    monkeypatch.setattr(airflow_versions, "version_of", lambda _: "3.2.2")
    with pytest.raises(
        ConfigError, match=r"FinishedRunsTrigger needs Airflow 3\.3 .* Airflow 3\.2\.2"
    ) as raised:
        ask()
    assert raised.value.fix == "upgrade Airflow, or wait with a sensor"
    monkeypatch.setattr(airflow_versions, "version_of", lambda _: "3.3.0")
    ask()
