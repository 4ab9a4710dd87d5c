"""Opens the resources that the calls of a task share before its first record, and closes them at the task's
end.

Rule: a resource is made, entered and left on the event loop, whose thread it may belong to: an HTTP session
asks for the running loop when it is made. Each step is bounded, and any exception of it is an error of the
node, ``SystemExit`` included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from airflow_kstreams.streams.calls.call import AsyncNode, CallTimeoutError, as_error
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.graph.calls import ResourceFactory
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)


class Resources:
    """The resources that are open; all methods run on the loop's thread."""

    def __init__(self) -> None:
        #: Node -> the exit stack that leaves its resource.
        self._open: dict[AsyncNode, AsyncExitStack] = {}

    async def enter(self, async_node: AsyncNode) -> Any:
        """Make a node's resource, and enter it in the time that a call of the node may take.

        :raises CallTimeoutError: it takes longer.
        :raises TopologyError: the factory made no context manager.
        :raises Exception: the resource's own error.
        """
        late = "the resource was not entered within the node's timeout_ms"
        return await _bounded(self._enter(async_node), async_node.timeout_seconds, late)

    async def close(self, seconds: float) -> None:
        """Leave the entered resources, the last first, each even if another one fails; errors are logged.

        :param seconds: time limit for all of them together.
        """
        now = asyncio.get_running_loop().time
        ends = now() + seconds
        late = f"it was not left within {seconds:g} s"
        while self._open:
            async_node, stack = self._open.popitem()
            with closing(f"the resource of node {async_node.name!r}", async_node.task_id):
                await _bounded(_left(stack), max(0.0, ends - now()), late)

    async def _enter(self, async_node: AsyncNode) -> Any:
        factory = async_node.options.resource
        if factory is None:
            return None
        with _as_errors():
            manager, stack = factory(), AsyncExitStack()
            if hasattr(type(manager), "__aenter__"):
                entered = await stack.enter_async_context(manager)
                self._open[async_node] = stack
                return entered
            if hasattr(type(manager), "__enter__"):
                entered = stack.enter_context(manager)
                self._open[async_node] = stack
                return entered
        raise TopologyError(
            f"task {async_node.task_id}: resource= of node {async_node.name!r} made an object of type "
            f"{type(manager).__name__}, expected a context manager",
            fix="pass what makes one, e.g. httpx.AsyncClient, or a function with @asynccontextmanager",
        )


def open_resources(async_nodes: Sequence[AsyncNode], enter: Callable[[AsyncNode], Any]) -> None:
    """Give each asynchronous node its entered resource; nodes that name the same factory share one.

    :param enter: function that makes and enters a node's resource, see :meth:`Resources.enter`.
    :raises Exception: the error of a resource; its node is on the traceback.
    """
    opened: list[tuple[ResourceFactory, Any]] = []
    for async_node in async_nodes:
        factory = async_node.options.resource
        if factory is None:
            continue
        # Compared, not hashed: a factory may be any object.
        found = next((at for at, (known, _) in enumerate(opened) if known is factory or known == factory), -1)
        if found < 0:
            entered = _entered(async_node, enter, _node=async_node.name, _ends=async_node.name)
            opened.append((factory, entered))
        async_node.resource = opened[found][1]


@contextmanager
def closing(what: str, task_id: str) -> Iterator[None]:
    """Log an error of closing, so that it hides no error of a record and other objects are closed, too.

    :param what: name, for the log, of the object that is closed.
    """
    try:
        yield
    except Exception:
        log.warning("task %s: closing %s failed", task_id, what, exc_info=True)


def _entered(async_node: AsyncNode, enter: Callable[[AsyncNode], Any], _node: str, _ends: str) -> Any:
    return enter(async_node)


async def _left(stack: AsyncExitStack) -> None:
    with _as_errors():
        await stack.aclose()


@contextmanager
def _as_errors() -> Iterator[None]:
    """Raise a wish to exit, and a cancellation that the step itself brought about, as errors of the node."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise as_error(error) from error


async def _bounded(step: Awaitable[Any], seconds: float, late: str) -> Any:
    """Return the result of a step that has a time limit.

    :param late: the message of the error when it takes too long.
    :raises CallTimeoutError: the step took longer; it is cancelled.
    """
    task = asyncio.ensure_future(step)
    ended, _ = await asyncio.wait((task,), timeout=seconds)
    if not ended:
        task.cancel()
        raise CallTimeoutError(late)
    return task.result()
