from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.promise("stuck-functions-are-named")


def test_process_ends_when_a_call_holds_the_interpreters_lock() -> None:
    text = (
        "import re\n"
        "from airflow_kstreams.spark.executor.stuck_functions import FunctionWatch\n"
        "def backtracks(): return re.match(r'(a+)+$', 'a' * 60 + 'b')\n"
        "FunctionWatch(['0_0'], stall_ms=1000).run([backtracks], at_once=1)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "in backtracks" in ended.stderr
