"""Threads that meet at the first use of a type, which kills a process in which msgspec is asked directly."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Threads meet at the first use of many types, one after the other.
_MEETING = """
from __future__ import annotations

import sys
import threading

import msgspec

from airflow_kstreams.streams import plan

sys.setswitchinterval(1e-6)
OUTER = {"inner": {"numbers": {"a": 1}}, "several": [{"texts": ["b"]}]}
JSON, MSGPACK = msgspec.json.encode(OUTER), msgspec.msgpack.encode(OUTER)
THREADS = 3


def types() -> type:
    class Inner(msgspec.Struct):
        numbers: dict[str, int] = {}
        texts: list[str] = []

    class Outer(msgspec.Struct):
        inner: Inner | None = None
        several: list[Inner] = []

    globals().update(Inner=Inner)
    return Outer


def ask(kind: type, found: list[object], gate: threading.Barrier) -> None:
    gate.wait()
    found.append(WAY(kind))


for _ in range(1_000):
    found: list[object] = []
    gate = threading.Barrier(THREADS)
    asked = (types(), found, gate)
    threads = [threading.Thread(target=ask, args=asked) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == THREADS and found[0] == found[1] == found[2], found
"""


@pytest.mark.parametrize(
    "way",
    [
        "plan.decode_json(JSON, kind)",
        "plan.json_decoder(kind).decode(JSON)",
        "plan.msgpack_decoder(kind).decode(MSGPACK)",
        "plan.convert(OUTER, kind)",
    ],
)
def test_threads_that_meet_at_the_first_use_of_a_type_all_read_it(way: str) -> None:
    program = _MEETING.replace("WAY(kind)", way)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
