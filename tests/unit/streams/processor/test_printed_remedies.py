"""Processors and calls that were refused while a task ran do as the error says, and give their results."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from airflow_kstreams.streams import AsyncProcessor, CallContext, RetryPolicy, Serde, StoreSpec
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.remedies import walked
from tests.support.topology.as_told import JSON, TEXT, Define, Forwarding, built

RECORDS = [("a", 1, 1_000), ("b", 2, 2_000), ("a", 3, 30_000)]
SUMS = [("a", 1), ("b", 2), ("a", 4)]
COPIED = [("a", 1), ("b", 2), ("a", 3)]
THREADS = {"num.threads.per.task": 2, "num.stream.threads": 2}
SKIP = {"processing.exception.handler": "skip"}
Settings = dict[str, object]


def given(define: Define, settings: Settings) -> list[tuple[Any, Any]]:
    """Return what a topology writes to ``out``."""
    with TopologyTestDriver(built(define), application_id="app", settings=settings) as driver:
        driver.pipe_records("in", RECORDS)
        return [(record.key, record.value) for record in driver.read_output("out")]


def out(stream: Any) -> Any:
    return stream.send_to("out", key_serde=TEXT, value_serde=JSON)


class Locked:
    """An object that cannot be copied."""

    def __init__(self, held: Any) -> None:
        self.held = held
        self.lock = threading.Lock()


class Copied(Locked):
    """The same with a method that copies it."""

    def __deepcopy__(self, memo: Any) -> Copied:
        return Copied(copy.deepcopy(self.held, memo))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Copied) and self.held == other.held

    def __hash__(self) -> int:
        return hash(self.held)


def unwrapped(value: Any) -> Any:
    return value.held if isinstance(value, Locked) else value


async def same(value: Any) -> Any:
    return unwrapped(value)


def _maker(made: Any) -> Callable[[bytes], Any]:
    return lambda data: made(int(data))


#: Of what is held, in an object.
HELD = {
    made: Serde(
        id=made.__name__,
        serialize=lambda value: b"%d" % unwrapped(value),
        deserialize=_maker(made),
    )
    for made in (Locked, Copied, int)
}


class Wrapping(Forwarding):
    """Forwards each value in an object."""

    made: Any = Locked

    def process(self, record: Any) -> None:
        self.context.forward(record.key, self.made(record.value))


class WrappingCopies(Wrapping):
    made = Copied


def waiting(made: type) -> Define:
    return lambda b: out(b.stream("in").process(made).map_values_async(same))


def threaded(made: type) -> Define:
    return lambda b: out(b.stream("in").process(made).filter(lambda k, v: True).map_values(unwrapped))


def folded(made: Any) -> Define:
    def define(b: Any) -> Any:
        spec = StoreSpec(name="sums", key_serde=TEXT, value_serde=HELD[made], cached=False)
        sums = b.stream("in").group_by_key().aggregate(lambda: made(0), add, store=spec)
        return out(sums.to_stream().map_values(unwrapped))

    return define


def add(key: str, value: int, so_far: Any) -> Any:
    return type(so_far)(unwrapped(so_far) + value)


# == calls


class Calling(AsyncProcessor[Any, Any, Any, Any]):
    """Forwards each record from its call."""

    def init(self, context: Any) -> None:
        self.context = context

    async def process(self, record: Any) -> None:
        self.context.forward(record.key, record.value)


class ForwardingLater(Calling):
    async def later(self, record: Any) -> None:
        await asyncio.sleep(1)
        self.context.forward(record.key, record.value)


class ForwardingInGroup(ForwardingLater):
    async def process(self, record: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.later(record))


class LeavingBehind(ForwardingLater):
    """Waits, in the call of the second record, for what the call of the first one left behind."""

    left: Any = None

    async def process(self, record: Any) -> None:
        if record.value == 1:
            LeavingBehind.left = asyncio.get_running_loop().create_task(self.later(record))
        else:
            await LeavingBehind.left


class OnOwnThread(Calling):
    async def process(self, record: Any) -> None:
        failed: list[KStreamsError] = []

        def forward() -> None:
            try:
                self.context.forward(record.key, record.value)
            except KStreamsError as error:
                failed.append(error)

        thread = threading.Thread(target=forward)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]


class OnLoopsThread(Calling):
    async def process(self, record: Any) -> None:
        await asyncio.to_thread(self.context.forward, record.key, record.value)


class WrappingCalls(Calling):
    made: Any = Locked

    async def process(self, record: Any) -> None:
        self.context.forward(record.key, self.made(record.value))


class CopyingCalls(WrappingCalls):
    made = Copied


class AskingResource(Calling):
    async def process(self, record: Any) -> None:
        self.context.forward(record.key, record.value * self.context.resource)


class AskingResourceEarly(AskingResource):
    def init(self, context: Any) -> None:
        super().init(context)
        self.resource = context.resource


class AskingKeyEarly(Calling):
    def init(self, context: Any) -> None:
        super().init(context)
        self.name = context.idempotency_key


class AskingKey(Calling):
    async def process(self, record: Any) -> None:
        assert self.context.idempotency_key
        await super().process(record)


@asynccontextmanager
async def one() -> AsyncIterator[int]:
    yield 1


def calling(made: type, **options: Any) -> Define:
    return lambda b: out(b.stream("in").process_async(made, order="partition", **options))


def unwrapping(made: type) -> Define:
    return lambda b: out(b.stream("in").process_async(made, order="partition").map_values(unwrapped))


async def keyed(value: Any, *, context: CallContext) -> Any:
    assert context.idempotency_key
    return value


def below_table(b: Any) -> Any:
    counts = b.stream("in").group_by_key().count(store="n").to_stream()
    return out(counts.map_values_async(keyed, name="ask"))


def above_table(b: Any) -> Any:
    asked = b.stream("in").map_values_async(keyed, name="ask")
    return out(asked.group_by_key(key_serde=TEXT, value_serde=JSON).count(store="n").to_stream())


#: How long a run may stand still here.
STALL: Settings = {"run.stall.timeout.ms": 30_000, "retry.run.budget.ms": 10_000}


def patient(longest_ms: int) -> RetryPolicy:
    return RetryPolicy(backoff_max_ms=longest_ms, key_serde=TEXT, value_serde=JSON)


def asking(b: Any, **options: Any) -> Any:
    return out(
        b.stream("in").map_values_async(same, order="key", name="ask", **{"timeout_ms": 5_000, **options})
    )


class ByStreamTime(Forwarding):
    """Forwards a record each so often in stream time.

    :cvar every: of ``schedule``.
    """

    every: Any = {"interval_ms": 1}

    def init(self, context: Any) -> None:
        super().init(context)
        self.calls = 0
        context.schedule(**self.every, callback=lambda now_ms: None)


class ByLastJump(ByStreamTime):
    every = {"interval_ms": 1, "jumps": "last"}


class ByLongerInterval(ByStreamTime):
    every = {"interval_ms": 1_000}


WALKS = [
    # == what must wait is copied
    walked("kept_values.standing.copied", (folded(Locked), SKIP), (folded(Copied), SKIP), SUMS),
    walked("kept_values.standing.copied", (folded(Locked), SKIP), (folded(int), SKIP), SUMS),
    walked("kept_values.standing.copied", (folded(Locked), SKIP), (folded(Locked), {}), SUMS),
    walked(
        "kept_values.refused: forward plain data",
        (waiting(Wrapping), {}),
        (waiting(Forwarding), {}),
        COPIED,
    ),
    walked(
        "kept_values.refused: forward plain data",
        (waiting(Wrapping), {}),
        (waiting(WrappingCopies), {}),
        COPIED,
    ),
    walked(
        "kept_values.refused: {}, or set", (threaded(Wrapping), THREADS), (threaded(Wrapping), {}), COPIED
    ),
    walked(
        "processor_outputs.OutputBuffer.add: forward plain data",
        (unwrapping(WrappingCalls), {}),
        (unwrapping(Calling), {}),
        COPIED,
    ),
    walked(
        "processor_outputs.OutputBuffer.add: forward plain data",
        (unwrapping(WrappingCalls), {}),
        (unwrapping(CopyingCalls), {}),
        COPIED,
    ),
    walked(
        "processor.FixedKey._incomparable",
        (lambda b: by_locked_key(b, Locked, "process_values"), {}),
        (lambda b: by_locked_key(b, Copied, "process_values"), {}),
        COPIED,
    ),
    walked(
        "processor.FixedKey._incomparable",
        (lambda b: by_locked_key(b, Locked, "process_values"), {}),
        (lambda b: by_locked_key(b, Locked, "process"), {}),
        COPIED,
    ),
    # == where a call may do what
    walked(
        "processor_outputs.OutputBuffer.add: await in process",
        (calling(LeavingBehind), {}),
        (calling(ForwardingInGroup), {}),
        COPIED,
    ),
    walked(
        "async_context.AsyncProcessorContext._call",
        (calling(OnOwnThread), {}),
        (calling(Calling), {}),
        COPIED,
    ),
    walked(
        "async_context.AsyncProcessorContext._call",
        (calling(OnOwnThread), {}),
        (calling(OnLoopsThread), {}),
        COPIED,
    ),
    walked(
        "async_context.AsyncProcessorContext.resource: pass resource=",
        (calling(AskingResource), {}),
        (calling(AskingResource, resource=one), {}),
        COPIED,
    ),
    walked(
        "async_context.AsyncProcessorContext.resource: ask for it in process",
        (calling(AskingResourceEarly, resource=one), {}),
        (calling(AskingResource, resource=one), {}),
        COPIED,
    ),
    walked(
        "processor_outputs._NoRecord.idempotency_key",
        (calling(AskingKeyEarly), {}),
        (calling(AskingKey), {}),
        COPIED,
    ),
    walked(
        "call.CallContext.idempotency_key",
        (below_table, {}),
        (above_table, {}),
        [("a", 2), ("b", 1)],
    ),
    walked(
        "resources.Resources._enter",
        (calling(AskingResource, resource=object), {}),
        (calling(AskingResource, resource=one), {}),
        COPIED,
    ),
    walked(
        "call_nodes.refuse_long_calls",
        (lambda b: asking(b, timeout_ms=60_000), STALL),
        (lambda b: asking(b, timeout_ms=5_000), STALL),
        COPIED,
    ),
    walked(
        "call_nodes.refuse_long_calls",
        (lambda b: asking(b, timeout_ms=60_000), STALL),
        (lambda b: asking(b, timeout_ms=60_000), {"run.stall.timeout.ms": 100_000}),
        COPIED,
    ),
    walked(
        "call_nodes._refuse_long_retries",
        (lambda b: asking(b, retry=patient(60_000)), STALL),
        (lambda b: asking(b, retry=patient(5_000)), STALL),
        COPIED,
    ),
    walked(
        "call_nodes._refuse_long_retries",
        (lambda b: asking(b, retry=patient(5_000)), {**STALL, "retry.run.budget.ms": 60_000}),
        (lambda b: asking(b, retry=patient(5_000)), {**STALL, "retry.run.budget.ms": 6_000}),
        COPIED,
    ),
    walked(
        "call_nodes._refuse_long_retries",
        (lambda b: asking(b, retry=patient(60_000)), STALL),
        (lambda b: asking(b, retry=patient(60_000)), {"run.stall.timeout.ms": 100_000}),
        COPIED,
    ),
    # == time
    walked(
        "punctuation.StreamTimeTicks._jump",
        (lambda b: out(b.stream("in").process(ByStreamTime)), {}),
        (lambda b: out(b.stream("in").process(ByLastJump)), {}),
        COPIED,
    ),
    walked(
        "punctuation.StreamTimeTicks._jump",
        (lambda b: out(b.stream("in").process(ByStreamTime)), {}),
        (lambda b: out(b.stream("in").process(ByLongerInterval)), {}),
        COPIED,
    ),
]


def by_locked_key(b: Any, made: Any, method: str) -> Any:
    keyed = b.stream("in").select_key(lambda key, value: made(key))
    return out(getattr(keyed, method)(Forwarding).select_key(lambda key, value: key.held))


@pytest.mark.parametrize(("fault", "told", "wanted"), WALKS)
def test_processor_does_as_the_error_says(
    fault: tuple[Define, Settings], told: tuple[Define, Settings], wanted: list[tuple[Any, Any]]
) -> None:
    with pytest.raises(KStreamsError):
        given(*fault)
    assert given(*told) == wanted
