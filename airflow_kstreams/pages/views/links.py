"""Makes the addresses of pages, of Airflow's pages, and of Airflow's own REST API.

Rule: each address begins with a path of ours or Airflow's, and each name in it is quoted, so none has a
scheme or a host, whatever a name holds. A name of dots alone would lead elsewhere, since browsers take it
as a step in the path, quoted or not: there the address is that of the list of applications.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from airflow_kstreams.pages.views.frame import DagApplication, Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A request to Airflow's REST API that a button makes, once the user has confirmed it.

    :param label: text of the button.
    :param question: what is asked before.
    :param address: path of the request, a POST.
    :param body: its body, JSON.
    """

    label: str
    question: str
    address: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The addresses for one frame."""

    frame: Frame

    @property
    def applications(self) -> str:
        """The list of applications."""
        return f"{self.frame.base}/"

    def static(self, file: str) -> str:
        """Return the address of a file of the pages.

        :param file: its name.
        """
        return f"{self.frame.base}/static/{file}"

    def application(self, app: DagApplication, *, before: str = "") -> str:
        """Return the address of an application's page.

        :param before: id of the run behind which its list of runs begins; empty for the newest.
        """
        query = f"?{_query(before=before)}" if before else ""
        return f"{self._page('applications', app.dag_id, app.application_id)}{query}"

    def run(self, app: DagApplication, run_id: str) -> str:
        """Return the address of a run's page."""
        return self._page("applications", app.dag_id, app.application_id, "runs", run_id)

    def comparison(self, app: DagApplication, first: str = "", second: str = "") -> str:
        """Return the address of two runs beside each other; of the form's target without them."""
        page = self._page("applications", app.dag_id, app.application_id, "compare")
        return f"{page}?{_query(first=first, second=second)}" if first else page

    def plan(self, app: DagApplication) -> str:
        """Return the address of the page of the next run."""
        return self._page("applications", app.dag_id, app.application_id, "plan")

    def airflow_dag(self, dag_id: str) -> str:
        """Return the address of a DAG in Airflow."""
        return self._path(self.frame.airflow, "dags", dag_id)

    def airflow_run(self, dag_id: str, run_id: str) -> str:
        """Return the address of a DAG run in Airflow."""
        return self._path(self.frame.airflow, "dags", dag_id, "runs", run_id)

    def clear(self, dag_id: str, run_id: str, *, only_failed: bool) -> Action:
        """Return the action that has Airflow try the tasks of a DAG run again.

        :param only_failed: whether tasks that have succeeded stay as they are.
        """
        what = "failed tasks" if only_failed else "all tasks"
        return Action(
            label=f"Clear {what}",
            question=f"Clear {what} of DAG run {run_id} of {dag_id}? Airflow runs them again.",
            address=self._path(self.frame.airflow, "api", "v2", "dags", dag_id, "dagRuns", run_id, "clear"),
            body=json.dumps({"dry_run": False, "only_failed": only_failed}),
        )

    def trigger(self, dag_id: str) -> Action:
        """Return the action that has Airflow start a DAG run now."""
        return Action(
            label="Trigger DAG run",
            question=f"Start a DAG run of {dag_id} now? It processes what has come since the last run.",
            address=self._path(self.frame.airflow, "api", "v2", "dags", dag_id, "dagRuns"),
            body=json.dumps({"logical_date": None}),
        )

    def _page(self, *names: str) -> str:
        return self._path(self.frame.base, *names)

    def _path(self, base: str, *names: str) -> str:
        if any(not name.strip(".") for name in names):
            return self.applications
        return "/".join((base, *(quote(name, safe="", errors="replace") for name in names)))


def _query(**named: str) -> str:
    return urlencode(named, errors="replace")
