"""Measures the calls of a task, around another caller that runs them.

A call carries the times at which the task gave it to its caller, at which it began and at which it ended, by
the clock of its node. So a latency holds no time in which the call had ended and the task's thread was busy,
and averages over time are sums of intervals: a call that runs for a second is one second in flight. Each time
the task asks for calls that have ended, the number of records in flight counts for the time since the last
request.

Measuring costs two readings of a clock for each call, some additions, and one pass over several hundred
latencies. A task without calls does not measure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_kstreams.streams.calls.call import AsyncNode, Call, Caller, CallTimeoutError
from airflow_kstreams.streams.figures.call_figures import (
    MOST_NODES,
    CallFigures,
    Latencies,
    LatencyRecorder,
    NodeCalls,
    ThreadFigures,
    ThreadState,
)

#: Latencies that are kept until they are put into their buckets together.
_TOGETHER = 500
_NS = 1_000_000_000


class MeasuredCaller:
    """Passes calls to another caller, and measures them.

    :param caller: the caller that runs them.
    :param async_nodes: the asynchronous nodes of the task, in topological order.
    :param threads: number of the task's threads for plain functions.
    :param in_flight: function that returns the number of records in flight.
    """

    def __init__(
        self,
        caller: Caller,
        async_nodes: Sequence[AsyncNode],
        *,
        threads: int,
        in_flight: Callable[[], int],
    ) -> None:
        self._caller = caller
        self._threads = threads
        self._in_flight = in_flight
        self._nodes = {async_node: _CalledNode(async_node) for async_node in async_nodes}
        self._now = next((async_node.now for async_node in async_nodes), _no_time)
        self._opened: float | None = None
        self._looked = 0.0
        self._waiting_seconds = 0.0
        self._most_waiting = 0

    @property
    def patience_seconds(self) -> float:
        """Longest wait of the task for a call, in seconds."""
        return self._caller.patience_seconds

    @property
    def threads_replaced(self) -> int:
        """The number of threads that were made in place of others."""
        return self._caller.threads_replaced

    def open(self) -> None:
        """Open the other caller, and start the time that is measured."""
        self._caller.open()
        self._now = next((async_node.now for async_node in self._nodes), _no_time)
        self._opened = self._looked = self._now()

    def start(self, call: Call) -> None:
        """Start a call as soon as its node's options allow."""
        call.given = self._now()
        again = call.again
        if again is not None and again.repeats:
            self._nodes[call.async_node].retried += 1
        self._caller.start(call)

    def hurry(self) -> None:
        """Make the started calls begin."""
        self._caller.hurry()

    def ended(self, wait_seconds: float) -> Sequence[Call]:
        """Return the calls that have ended since this was asked last."""
        in_flight = self._in_flight()
        back = self._caller.ended(wait_seconds)
        now = self._now()
        self._waiting_seconds += in_flight * (now - self._looked)
        self._looked = now
        if in_flight > self._most_waiting:
            self._most_waiting = in_flight
        nodes = self._nodes
        for call in back:
            ended = call.ended
            if ended is None:
                continue  # it was never made
            node = nodes[call.async_node]
            started = call.started
            node.seconds.append(ended - started)
            node.queued_seconds += started - call.given
            if call.error is not None:
                node.failed += 1
                node.timed_out += isinstance(call.error, CallTimeoutError)
            if len(node.seconds) >= _TOGETHER:
                node.put()
        return back

    def thread_states(self) -> Sequence[ThreadState]:
        """Return the state of each thread that runs calls."""
        return self._caller.thread_states()

    def close(self) -> None:
        """Give up the calls that run."""
        self._caller.close()

    def figures(self) -> CallFigures:
        """Return the figures measured up to now."""
        open_ns = 0 if self._opened is None else round((self._now() - self._opened) * _NS)
        return CallFigures(
            nodes=tuple(node.figures() for node in self._nodes.values()),
            open_ns=open_ns,
            waiting_ns=round(self._waiting_seconds * _NS),
            most_waiting=self._most_waiting,
            threads=self._thread_figures(open_ns),
        ).first(MOST_NODES)

    def _thread_figures(self, open_ns: int) -> ThreadFigures:
        states = self._caller.thread_states()
        loop = next((state for state in states if state.event_loop), None)
        busy_seconds = 0.0 if loop is None else loop.busy_seconds
        pooled = any(not state.event_loop for state in states)
        named = [state.state for state in states]
        return ThreadFigures(
            running=named.count("RUNNING"),
            idle=named.count("IDLE"),
            abandoned=named.count("ABANDONED"),
            replaced=self._caller.threads_replaced,
            open_ns=self._threads * open_ns if pooled else 0,
            busy_ns=sum(node.latencies().total_ns for node in self._nodes.values() if node.on_threads)
            if pooled
            else 0,
            loop_open_ns=0 if loop is None else open_ns,
            loop_busy_ns=None if busy_seconds is None else round(busy_seconds * _NS),
        )


class _CalledNode:
    """The measurements of one node.

    :ivar seconds: durations, in seconds, of calls that are not in a bucket yet.
    """

    def __init__(self, async_node: AsyncNode) -> None:
        self._async_node = async_node
        self._recorder = LatencyRecorder()
        self.on_threads = async_node.options.threads
        self.seconds: list[float] = []
        self.queued_seconds = 0.0
        self.failed = self.timed_out = self.retried = 0

    def put(self) -> None:
        """Put latencies into their buckets."""
        self._recorder.record_each(self.seconds)
        self.seconds.clear()

    def latencies(self) -> Latencies:
        """Return the durations of the calls."""
        self.put()
        return self._recorder.latencies()

    def figures(self) -> NodeCalls:
        """Return the figures measured up to now."""
        return NodeCalls(
            self._async_node.name,
            self.latencies(),
            self.failed,
            self.timed_out,
            self.retried,
            self._async_node.most_in_flight,
            round(self.queued_seconds * _NS),
        )


def _no_time() -> float:
    return 0.0
