from __future__ import annotations

from pathlib import Path

from tests.support.fresh_python import ask

_LOGGED = """
import io, logging, sys
stderr = sys.stderr = io.StringIO()
{first}
from airflow_kstreams.spark.executor.task_host import show_log_lines
show_log_lines()
show_log_lines()
{then}
logging.getLogger("airflow_kstreams.batch.task.runner").info("task 0_0 done")
logging.getLogger("other").info("not ours")
answer = stderr.getvalue()
"""


def test_workers_write_each_line_once_unless_their_logging_was_set_up_otherwise(tmp_path: Path) -> None:
    answers = ask(
        {
            "plain": _LOGGED.format(first="", then=""),
            "application sets it up": _LOGGED.format(first="", then="logging.basicConfig(level=30)"),
            "set up before": _LOGGED.format(first="logging.basicConfig(level=logging.WARNING)", then=""),
        },
        home=tmp_path,
    )
    for question in ("plain", "application sets it up"):
        (line,) = answers.to(question).splitlines()
        assert line.endswith(" INFO airflow_kstreams.batch.task.runner: task 0_0 done")
    assert answers.to("set up before") == ""
