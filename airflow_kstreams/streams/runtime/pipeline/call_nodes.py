"""Brings the answer of a call back to its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_kstreams.streams.calls.call import Call
from airflow_kstreams.streams.errors import ConfigError, KStreamsError
from airflow_kstreams.streams.graph.calls import CallOptions, CallSpec, RetryPolicy
from airflow_kstreams.streams.records.user_traceback import failing_node
from airflow_kstreams.streams.settings import ApplicationSettings


def delivery(
    node: str,
    give: Callable[[Any, Any, Any], None],
    failed: Callable[[Exception], None] | None,
    handle: Callable[[Exception, str], None] | None,
) -> Callable[[Call], None]:
    """Return the function that takes an ended call when its record has its turn.

    :param node: name of the node.
    :param give: function that takes key, value and the call's answer.
    :param failed: function that takes the error of a failed call; None to raise the error, as a function
        called at once would.
    :param handle: the processing error handler; None if errors end the task.
    """

    def delivered(call: Call, _node: str = node) -> None:
        if call.error is None:
            give(call.key, call.value, call.result)
        elif failed is None:
            raise call.error
        else:
            failed(call.error)

    if handle is None:
        return delivered

    def handled(call: Call) -> None:
        try:
            delivered(call)
        except KStreamsError:
            raise
        except Exception as error:
            handle(error, failing_node(error, node))

    return handled


def plain_calls(settings: ApplicationSettings) -> CallOptions:
    """Return the call options of plain operators' functions: with the longest timeout, as they had none."""
    return CallOptions(
        max_in_flight=settings.num_threads_per_task,
        timeout_ms=settings.run_stall_timeout_ms - 1,
        threads=True,
        implicit=True,
    )


def refuse_long_calls(node: str, spec: CallSpec, settings: ApplicationSettings, task_id: str) -> None:
    """Refuse calls that could keep a task without progress for ``run.stall.timeout.ms`` or longer.

    :raises ConfigError: a call or its retries could.
    """
    timeout_ms, stall_ms = spec.options.timeout_ms, settings.run_stall_timeout_ms
    if timeout_ms >= stall_ms:
        raise ConfigError(
            f"task {task_id}: a call of node {node!r} may take timeout_ms={timeout_ms}, and a run without "
            f"progress for run.stall.timeout.ms={stall_ms} fails",
            fix="give the node a smaller timeout_ms, or raise run.stall.timeout.ms",
        )
    if spec.options.retry is not None:
        _refuse_long_retries(node, spec.options, spec.options.retry, settings, task_id)


def _refuse_long_retries(
    node: str, options: CallOptions, retry: RetryPolicy, settings: ApplicationSettings, task_id: str
) -> None:
    """Refuse retries whose waits could last for ``run.stall.timeout.ms`` or longer.

    :raises ConfigError: they could.
    """
    where, budget_ms = f"task {task_id}: node {node!r}", settings.retry_run_budget_ms
    stall_ms = settings.run_stall_timeout_ms
    for name, longest_ms in (
        ("backoff_max_ms", retry.backoff_max_ms),
        ("retry.run.budget.ms", budget_ms if options.parks else 0),
    ):
        if longest_ms >= stall_ms:
            raise ConfigError(
                f"{where} may wait for {name}={longest_ms} before it calls again, and a run without progress "
                f"for run.stall.timeout.ms={stall_ms} fails",
                fix=f"lower {name}, or raise run.stall.timeout.ms",
            )
