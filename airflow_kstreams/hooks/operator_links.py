"""Gives the operators links that Airflow shows beside their task instances: to the pages of the run, and to
Spark's own pages.

A link is made in the worker, when the task has ended, and kept in XCom. It is a path of the API server, which
the browser completes: a worker need not know the server's host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink

from airflow_kstreams.hooks.airflow_versions import airflow_conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

#: Path below the API server's own at which the pages are mounted.
PAGES_PATH = "/kstreams"
#: Stands, in the address of Spark's pages, for the driver's name in its cluster manager.
_DRIVER = "{driver}"


def server_path() -> str:
    """Return the path of Airflow's API server as browsers see it, without a slash at its end."""
    return urlsplit(airflow_conf().get("api", "base_url", fallback="") or "").path.rstrip("/")


class KafkaRunLink(BaseOperatorLink):
    """Links a task instance to the page of its run."""

    @property
    def name(self) -> str:
        """The button's name."""
        return "Kafka run"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the path of the page.

        :param operator: operator of the task.
        :param ti_key: names the DAG and the DAG run.
        """
        dag_id, run_id = quote(ti_key.dag_id, safe=""), quote(ti_key.run_id, safe="")
        return f"{server_path()}{PAGES_PATH}/dags/{dag_id}/runs/{run_id}"


class SparkLink(BaseOperatorLink):
    """Links a task instance of a ``RunTopologyOperator`` to Spark's pages, which the deployment's option
    ``[kstreams] spark_url`` names.
    """

    @property
    def name(self) -> str:
        """The button's name."""
        return "Spark"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address; empty, for no button, if the deployment names none, or if it asks for the
        driver's name and the cluster manager gave none.

        :param operator: operator of the task, after it was executed.
        :param ti_key: is not used.
        """
        address = str(airflow_conf().get("kstreams", "spark_url", fallback="") or "")
        if urlsplit(address).scheme not in ("http", "https"):
            return ""
        driver = str(cast("Any", operator).spark_driver)
        if _DRIVER in address and not driver:
            return ""
        return address.replace(_DRIVER, quote(driver, safe=""))
