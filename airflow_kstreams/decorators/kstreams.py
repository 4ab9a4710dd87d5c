"""Defines ``@task.kstreams``: a function that returns a topology becomes the task that runs it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory

from airflow_kstreams.batch.report.results import RunResult
from airflow_kstreams.decorators.function_file import application_text, function_source
from airflow_kstreams.hooks.outcomes import airflow_outcomes
from airflow_kstreams.hooks.rendered import Reader
from airflow_kstreams.operators.run_topology import RunTopologyOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["kstreams_task"]

#: Text of the templates until the task runs.
_MADE_WHEN_RUN = "(made of the decorated function when the task runs)"


class _KStreamsDecoratedOperator(DecoratedOperator, RunTopologyOperator):
    """Runs the topology that a function returns; see :func:`kstreams_task`."""

    custom_operator_name = "@task.kstreams"
    template_fields: Sequence[str] = (
        *DecoratedOperator.template_fields,
        *(name for name in RunTopologyOperator.template_fields if name != "application"),
    )
    readers: ClassVar[Mapping[str, Reader]] = {
        name: read for name, read in RunTopologyOperator.readers.items() if name != "application"
    }
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DecoratedOperator.template_fields_renderers,
        **RunTopologyOperator.template_fields_renderers,
    }

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        finish: bool = True,
        **kwargs: Any,
    ) -> None:
        if "application" in kwargs:
            raise TypeError("@task.kstreams takes no application: the decorated function is the application")
        function_source(python_callable)
        super().__init__(
            python_callable=python_callable,
            op_args=op_args,
            op_kwargs=op_kwargs,
            application=_MADE_WHEN_RUN,
            finish=finish,
            **kwargs,
        )

    def execute(self, context: Context) -> RunResult:  # type: ignore[override]  # the provider's returns None
        """Make the application file and run it."""
        with airflow_outcomes():
            text = application_text(self.python_callable, self.op_args, self.op_kwargs, dict(context.items()))
        # The file's name is the name of the module in which the user's classes are.
        name = re.sub(r"\W", "_", f"{self.dag_id}__{self.task_id}")
        with tempfile.TemporaryDirectory(prefix="kstreams-application-") as folder:
            file = Path(folder) / f"{name}.py"
            file.write_text(text, encoding="utf-8")
            self.application = str(file)
            return RunTopologyOperator.execute(self, context)


def kstreams_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """Make a task of a function that returns a topology: ``@task.kstreams``.

    The function's source is taken out of the DAG file into an application file of its own, which is submitted
    to Spark; the function is not called in Airflow's worker. So it imports what it uses inside, and its
    arguments are plain JSON. A parameter such as ``ds``, ``run_id`` or ``params`` takes its value in the
    task's context, also where the task finishes an earlier run first. The one task begins, processes and
    finishes the run; with ``finish=False`` a
    :class:`~airflow_kstreams.operators.incremental_batch.FinishRunOperator` follows.

    :param python_callable: the function.
    :param kwargs: as for :class:`~airflow_kstreams.operators.run_topology.RunTopologyOperator`, without
        ``application``.
    :return: the decorated function; called in a DAG it gives the task.
    :raises ConfigError: the function uses names of the DAG file around it.

    >>> from airflow.sdk import DAG, task
    >>> with DAG("orders_inline", schedule="@hourly", max_active_runs=1) as dag:
    ...     @task.kstreams(application_id="orders", settings={"processing.guarantee": "exactly_once"})
    ...     def large_orders(at_least):
    ...         from airflow_kstreams.streams import KStreamBuilder, serdes
    ...
    ...         builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    ...         orders = builder.stream("orders")
    ...         orders.filter(lambda _, order: order["cents"] >= at_least).send_to("large-orders")
    ...         return builder.build()
    ...
    ...     run = large_orders(10_000)
    >>> print(*dag.task_ids)
    large_orders
    """
    return task_decorator_factory(
        python_callable=python_callable, decorated_operator_class=_KStreamsDecoratedOperator, **kwargs
    )
