"""Makes HTML of typed readings: one function a page, each from values to text.

The routes of ``pages`` call it. It may import ``inspect``, the engine's floor and ``streams.picture``,
and knows neither Airflow nor FastAPI nor Kafka: who may see a page, and where its values come from, is
decided before.

Rule: text of others (names, ids, causes) is text on a page. It reaches HTML through the templates alone,
which bring it into a printable form and escape it; addresses are made by :class:`.links.Links`, which
begins each with a path of ours and quotes the rest. No value, no key and no message of an exception about
a record is shown.
"""

from __future__ import annotations

from airflow_kstreams.pages.views.application_list import ApplicationRow, applications_page
from airflow_kstreams.pages.views.application_view import ApplicationReadings, application_page
from airflow_kstreams.pages.views.frame import DagApplication, Frame, KeptRun
from airflow_kstreams.pages.views.messages import message_page
from airflow_kstreams.pages.views.plan_view import plan_page
from airflow_kstreams.pages.views.run_view import comparison_page, run_page

__all__ = [
    "ApplicationReadings",
    "ApplicationRow",
    "DagApplication",
    "Frame",
    "KeptRun",
    "application_page",
    "applications_page",
    "comparison_page",
    "message_page",
    "plan_page",
    "run_page",
]
