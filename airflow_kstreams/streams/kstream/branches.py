"""What ``KStream.split`` returns."""

from __future__ import annotations

from typing import TypeVar

from airflow_kstreams.streams.hints.java_classes import answers_methods_of

T = TypeVar("T")


@answers_methods_of("BranchedKStream")
class Branches(dict[str, T]):
    """Branches by their names."""
