"""An application whose port calls pass an interceptor, and one that does something at one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.testing import FaultyCluster
from airflow_kstreams.testing.faults import Interceptor
from tests.support.kafka.in_process import Application

T = TypeVar("T")


class Once:
    """Does something before the n-th call of a name.

    :param about: what the call's arguments must mention to count.
    """

    def __init__(self, name: str, number: int, action: Callable[[], object], *, about: str = "") -> None:
        self.name, self.left, self.action, self.about = name, number, action, about

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """Make the call, see ``Interceptor``."""
        if name == self.name and self.about in str(arguments):
            self.left -= 1
            if self.left == 0:
                self.action()
        return effect()


@dataclass(kw_only=True)
class InterceptedApplication(Application):
    """An application on a cluster behind an interceptor.

    :param interceptor: None for the cluster itself.
    """

    interceptor: Interceptor | None = None

    @property
    def cluster(self) -> ClusterPort:
        """The cluster, as the application sees it."""
        inner = super().cluster
        return inner if self.interceptor is None else FaultyCluster(inner, self.interceptor)
