"""The death of a process, as a test plays it."""

from __future__ import annotations


class Crash(BaseException):
    """The process is gone: no handler in the engine may catch it, as none can catch a SIGKILL."""
