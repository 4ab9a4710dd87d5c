"""Names the extra to install where a library that only parts of this package need is missing."""

from __future__ import annotations

import importlib.util

from airflow_kstreams.streams.errors import MissingExtraError


def require(extra: str, *modules: str, what: str) -> None:
    """Check that modules are installed, without importing them (of a nested one, the packages above it are).

    :param extra: brings them.
    :param what: needs them.
    :raises MissingExtraError: one is not there.
    """
    for module in modules:
        try:
            found = importlib.util.find_spec(module) is not None
        except ImportError:  # a package above it is missing
            found = False
        if not found:
            raise MissingExtraError(
                f"{what} needs {module}, which is not installed here",
                fix=f"pip install 'airflow-kstreams[{extra}]'",
            )
