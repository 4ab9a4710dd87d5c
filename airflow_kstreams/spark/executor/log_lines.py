"""Shows the log of a worker's tasks: a line at the end of each, and some while one restores."""

from __future__ import annotations

import logging
import sys

#: Format of every process of a run, so that a log which several of them write reads as one.
LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_PACKAGE = "airflow_kstreams"


def show_log_lines() -> None:
    """Write this package's log, from INFO on, to the worker's stderr, which Spark keeps as the executor's log
    and which is the driver's own on a ``local`` master. A worker that has logging of its own keeps it.
    """
    package = logging.getLogger(_PACKAGE)
    if package.hasHandlers():
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(LINE))
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    # An application file may set up the root's logging later; each line still comes once.
    package.propagate = False
