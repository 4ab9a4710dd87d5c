"""Runs calls of plain functions on threads.

Rule: a thread that hangs cannot be killed. Its call is given up at ``timeout_ms``: its record goes on with
the error, another thread takes the place, and the old one ends when its function returns, if ever; until then
it counts as abandoned. Threads are daemons, so that a process can end in spite of them. After the close no
call begins: a thread checks for the close under the lock under which it takes its call.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from airflow_kstreams.streams.calls import abandoned
from airflow_kstreams.streams.calls.call import AsyncNode, Call, CallEndedError, as_error, end_if_forked
from airflow_kstreams.streams.calls.call_queue import CallQueue
from airflow_kstreams.streams.figures.call_figures import ThreadState
from airflow_kstreams.streams.hints.function_checks import answered


class ThreadCalls:
    """The threads of one task.

    :param threads: number of threads.
    :param announce: function that takes each call that has ended, from any thread.
    :param name: beginning of the threads' names.
    """

    def __init__(
        self, threads: int, async_nodes: Sequence[AsyncNode], announce: Callable[[Call], None], *, name: str
    ) -> None:
        self._announce = announce
        self._name = name
        self._lock = threading.Lock()
        self._call_queues = {async_node: CallQueue(async_node) for async_node in async_nodes}
        self._work: SimpleQueue[Call | None] = SimpleQueue()
        self._process = os.getpid()
        self._made = 0
        self._closed = False
        self._workers = [self._worker() for _ in range(threads)]
        #: Workers that were given up.
        self._left: list[_Worker] = []

    def add(self, call: Call) -> None:
        """Start a call as soon as its node's options and the threads allow."""
        with self._lock:
            try:
                self._call_queues[call.async_node].add(call)
            except Exception as error:  # a key that cannot be told from others
                call.error = error
            else:
                self._fill(call.async_node)
                return
        self._announce(call)

    def look(self) -> None:
        """Give up calls that have run too long, and replace threads that have died."""
        now = time.monotonic()
        for number, worker in enumerate(self._workers):
            call = worker.call
            if call is None and not worker.thread.is_alive():
                self._workers[number] = self._worker()
            if call is None:
                continue
            if not worker.thread.is_alive():
                self._replace(number, call, CallEndedError("the thread of the call is gone"), hangs=False)
            elif now - call.started > call.async_node.timeout_seconds:
                self._replace(number, call, call.timed_out(), hangs=True)

    def states(self) -> Sequence[ThreadState]:
        """Return the state of each thread; those given up are listed as long as they go on."""
        self._left = [worker for worker in self._left if worker.thread.is_alive()]
        left = [ThreadState(name=worker.thread.name, state="ABANDONED") for worker in self._left]
        return [
            *(
                ThreadState(name=worker.thread.name, state="IDLE" if worker.call is None else "RUNNING")
                for worker in self._workers
            ),
            *left,
        ]

    @property
    def replaced(self) -> int:
        """The number of threads that were made in place of others."""
        return self._made - len(self._workers)

    def close(self) -> None:
        """Make the threads end with their functions; running calls are given up, others never begin."""
        with self._lock:
            self._closed = True
            for worker in self._workers:
                if (call := worker.call) is not None:
                    call.given_up = True
        for _ in range(self._made):
            self._work.put(None)

    def join(self, seconds: float) -> None:
        """Wait for the threads; those that do not end count as abandoned."""
        ends = time.monotonic() + seconds
        for worker in self._workers:
            worker.thread.join(max(0.0, ends - time.monotonic()))
            self._abandon(worker)

    def _replace(self, number: int, call: Call, error: Exception, *, hangs: bool) -> None:
        with self._lock:
            if self._workers[number].call is not call:
                return  # it has ended meanwhile
            call.given_up = True
            call.error = error
            if hangs:
                self._abandon(self._workers[number])
            self._workers[number] = self._worker()
            not_made = self._call_queues[call.async_node].ended(call)
            self._fill(call.async_node)
        for each in (call, *not_made):
            self._announce(each)

    def _abandon(self, worker: _Worker) -> None:
        if worker.thread.is_alive():
            self._left.append(worker)
            abandoned.add(worker.thread.is_alive, f"a call on {worker.thread.name}")

    def _fill(self, async_node: AsyncNode) -> None:
        call_queue = self._call_queues[async_node]
        while not self._closed and (call := call_queue.next()) is not None:
            self._work.put(call)

    def _worker(self) -> _Worker:
        self._made += 1
        worker = _Worker()
        worker.thread = threading.Thread(
            target=self._serve, args=(worker,), name=f"{self._name}-{self._made}", daemon=True
        )
        worker.thread.start()
        return worker

    def _serve(self, worker: _Worker) -> None:
        while (call := self._work.get()) is not None:
            with self._lock:
                if self._closed:
                    return
                call.started = time.monotonic()
                call.async_node.begun()
                worker.call = call
            result, error = None, None
            try:
                result = answered(call.invoke())
            except BaseException as failure:  # a wish to exit is an outcome, too
                error = as_error(failure)
            end_if_forked(self._process)
            with self._lock:
                worker.call = None
                if call.given_up:
                    return
                call.result, call.error = result, error
                not_made = self._call_queues[call.async_node].ended(call)
                self._fill(call.async_node)
            for each in (call, *not_made):
                self._announce(each)


class _Worker:
    """A thread, and the call that it runs."""

    __slots__ = ("call", "thread")

    thread: threading.Thread

    def __init__(self) -> None:
        self.call: Call | None = None
