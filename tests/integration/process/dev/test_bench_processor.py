"""The processor time that ``dev/bench`` counts: of one host's processes, and of no others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.benchmarks import hosts, processor
from dev.benchmarks.hosts import Host

#: Is busy while it starts, and for each request: itself, in a child that ends, and in one that stays.
_HOST = """
import subprocess, sys, time

def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

if len(sys.argv) > 1:
    busy(0.5)
    print("done", flush=True)
    sys.stdin.read()
else:
    busy(2)
    print('{"ready": true}', flush=True)
    for line in sys.stdin:
        busy(0.5)
        ended = [sys.executable, __file__, "child"]
        subprocess.run(ended, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        child = subprocess.Popen(
            [sys.executable, __file__, "child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        child.stdout.readline()
        print('{"seconds": 1.0}', flush=True)
"""
#: The kernel counts in hundredths of a second.
_TICKS = -0.1
#: Three times half a second; a Python's start takes some more.
_LEAST, _MOST = 1.5 + _TICKS, 2.3


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A host whose runs take a second and a half of processor time."""
    script = tmp_path / "busy.py"
    script.write_text(_HOST)
    monkeypatch.setitem(hosts.HOSTS, "busy", lambda _: [sys.executable, str(script)])
    with Host("busy", tmp_path) as started:
        yield started


def test_processor_seconds_are_those_of_the_host_and_its_children_in_the_run(host: Host) -> None:
    busy = "import time\nwhile True: pass"
    bystander = subprocess.Popen([sys.executable, "-c", busy])
    try:
        first = host.run({})
        second = host.run({})
    finally:
        bystander.kill()
        bystander.wait()
    assert _LEAST <= first.processor_seconds <= _MOST, "its start is no part of a run"
    assert _LEAST <= second.processor_seconds <= _MOST, "nor is the run before"
    assert 2 + 2 * _LEAST <= host.processor_seconds() <= 2.3 + 2 * _MOST


def test_processor_seconds_are_what_the_host_says_when_it_knows_when_its_run_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = '{"seconds": 1.0, "processor_seconds": 7.5}'
    script = f"print('{{}}', flush=True)\nfor _ in __import__('sys').stdin: print('{said}', flush=True)"
    monkeypatch.setitem(hosts.HOSTS, "saying", lambda _: [sys.executable, "-c", script])
    with Host("saying", tmp_path) as started:
        answer = started.run({})
    assert (answer.processor_seconds, answer.details) == (7.5, {})


def test_processor_seconds_of_a_child_count_once_when_it_has_ended() -> None:
    before = processor.seconds_of(os.getpid())
    # Long beside the start of an interpreter and the threads that other tests left in this process.
    busy = "import time\nwhile time.process_time() < 2: pass\nprint(flush=True)\ninput()"
    child = subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    running = processor.seconds_of(os.getpid()) - before
    child.communicate(b"\n")
    ended = processor.seconds_of(os.getpid()) - before
    assert _TICKS + 2 <= running <= ended < 3.9
