"""The processor time that ``dev/bench`` counts: of one host's processes, and of no others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.benchmarks import hosts, processor
from dev.benchmarks.hosts import Host

#: Is busy while it starts, and for each request: itself, in a child that ends, and in one that stays. It says
#: what the system's clock of each process says of that.
_HOST = """
import json, resource, subprocess, sys, time

def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

def had():
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(staying)

staying = []
if len(sys.argv) > 1:
    busy(0.5)
    print(time.process_time(), flush=True)
    sys.stdin.read()
else:
    busy(2)
    print('{"ready": true}', flush=True)
    for line in sys.stdin:
        before = had()
        busy(0.5)
        ended = [sys.executable, __file__, "child"]
        subprocess.run(ended, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        child = subprocess.Popen(
            [sys.executable, __file__, "child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        staying.append(float(child.stdout.readline()))
        print(json.dumps({"seconds": 1.0, "run": had() - before, "whole": had()}), flush=True)
"""
#: The kernel counts in hundredths of a second, each of some processes for itself; less than any busy part.
_TICKS = 0.2


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
    assert first.processor_seconds == pytest.approx(first.details["run"], abs=_TICKS), (
        "its start is no part of a run"
    )
    assert second.processor_seconds == pytest.approx(second.details["run"], abs=_TICKS), (
        "nor is the run before"
    )
    assert host.processor_seconds() == pytest.approx(second.details["whole"], abs=_TICKS)


def test_processor_seconds_are_what_the_host_says_when_it_knows_when_its_run_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = '{"seconds": 1.0, "processor_seconds": 7.5}'
    script = f"print('{{}}', flush=True)\nfor _ in __import__('sys').stdin: print('{said}', flush=True)"
    monkeypatch.setitem(hosts.HOSTS, "saying", lambda _: [sys.executable, "-c", script])
    with Host("saying", tmp_path) as started:
        answer = started.run({})
    assert (answer.processor_seconds, answer.details) == (7.5, {})


#: Starts a child that is busy and waits for it when told, and says what both had by the system's account.
_PARENT = """
import os, subprocess, sys, time

busy = "import sys, time\\nwhile time.process_time() < 1: pass\\nprint(flush=True)\\nsys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(flush=True)
input()
child.stdin.close()
had = os.wait4(child.pid, 0)[2]
print(time.process_time() + had.ru_utime + had.ru_stime, flush=True)
sys.stdin.read()
"""


def test_processor_seconds_of_a_child_count_once_when_it_has_ended() -> None:
    command = [sys.executable, "-c", _PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdout.readline()
        running = processor.seconds_of(parent.pid)
        parent.stdin.write("\n")
        parent.stdin.flush()
        whole = float(parent.stdout.readline())
        ended = processor.seconds_of(parent.pid)
        parent.stdin.close()
    assert 1 - _TICKS < running <= ended
    assert ended == pytest.approx(whole, abs=_TICKS), "a child counts as itself, or with the one that waited"
