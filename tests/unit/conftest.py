"""What every unit test is kept from: starting a process, and asking for a broker."""

from __future__ import annotations

import importlib
import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

_ELSEWHERE = "a test that needs it belongs into tests/integration/process, or another integration suite"
_STARTING = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")

# Asks the command `file` about this Python when it is first imported.
importlib.import_module("croniter")


@pytest.fixture(scope="module", autouse=True)
def started() -> Iterator[list[str]]:
    """Processes that the module's tests wanted to start; each attempt fails where it is made."""
    seen: list[str] = []

    def refusing(name: str) -> Callable[..., NoReturn]:
        def refuse(*arguments: Any, **_: Any) -> NoReturn:
            if "fc-list" in str(arguments[-1:]):
                # matplotlib, which draws benchmarks, asks it for fonts where it has no list of them yet.
                raise FileNotFoundError("fc-list")
            # Popen's first argument is itself.
            seen.append(f"{name}: {arguments[-1:]}")
            raise AssertionError(f"a unit test starts no process ({name}{arguments[-1:]}): {_ELSEWHERE}")

        return refuse

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subprocess.Popen, "__init__", refusing("subprocess.Popen"))
        for name in _STARTING:
            patched.setattr(os, name, refusing(f"os.{name}"))
        yield seen


@pytest.fixture(autouse=True)
def _no_process_was_started(started: list[str]) -> Iterator[None]:
    """The code under test may have caught the refusal; the test fails all the same."""
    started.clear()
    yield
    assert started == [], f"a unit test starts no process: {_ELSEWHERE}"


@pytest.fixture(scope="session")
def broker() -> NoReturn:
    """Refuse what every fixture of a real broker asks for."""
    pytest.fail(f"a unit test asks for no broker: {_ELSEWHERE}")


@pytest.fixture(scope="session")
def secured_broker() -> NoReturn:
    """Refuse the broker with users."""
    pytest.fail(f"a unit test asks for no broker: {_ELSEWHERE}")
