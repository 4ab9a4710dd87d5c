"""A TCP proxy before a Kafka broker that knows single requests, and does harm to those that a rule names.

The broker has a listener of its own for it, which advertises the proxy's address (``Broker(proxy_port=...)``
of :mod:`dev.servers.embedded`), so whoever bootstraps at the proxy stays on it. The proxy is a thread of this
process::

    with KafkaProxy.before(broker) as proxy:
        held = proxy.add(Rule(action="hold", apis=(Api.END_TXN,), transactional_id="app-0_0"))
        ...
        assert proxy.hits(held)
        proxy.release(held)

Another process gives the same orders through :mod:`dev.proxy.kafka_proxy_control`.

What a rule can do (a request is held, dropped, cut only once; ``times`` and ``skip`` say how often and from
which one on):

- ``watch``: nothing, it only counts.
- ``hold``: the request waits until the rule is released or ``seconds`` have passed, and what follows on that
  connection waits behind it, as TCP has it. If the client gives up meanwhile, the request still reaches the
  broker, late. On any api this is a direction that stalls.
- ``drop``: the broker never sees the request; the connection lives on.
- ``hold_answer``, ``drop_answer``: the same for the broker's answer.
- ``cut``: the connection ends before the request is forwarded.
- ``cut_answered``: it ends after the broker has answered; the client never sees the answer.
- ``cut_client``: the request is forwarded and only the client's side ends; the broker's side stays open until
  the rule is released.
- ``cut_broker``: only the broker's side ends, without the request; the client's side stays open and mute
  until the rule is released or the client leaves.
"""

from __future__ import annotations

import asyncio
import threading
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from fnmatch import fnmatchcase
from struct import pack, unpack
from typing import Literal, Self, TypeVar

import msgspec

from dev.proxy.kafka_request import Request, parse_request
from dev.servers.embedded import HOST, Broker

_ORDER_SECONDS = 10.0
#: How long a connection whose client has left still waits for the broker's answers to what it sent.
_LAST_ANSWERS_SECONDS = 5.0
#: As much of an answer as a hit keeps.
_ANSWER_BYTES = 64

T = TypeVar("T")
Action = Literal[
    "watch", "hold", "drop", "hold_answer", "drop_answer", "cut", "cut_answered", "cut_client", "cut_broker"
]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests to harm, and how.

    :param action: see the module.
    :param apis: api keys; empty means any.
    :param transactional_id: a pattern as in file names (``app-0_*``); empty means any request, also one
        without transactional id.
    :param commits: of EndTxn: only those that commit, or only those that abort.
    :param skip: how many matching requests pass unharmed first.
    :param times: how many are harmed then; 0 means all.
    :param seconds: how long one is held; 0 means until the rule is released.
    """

    action: Action
    apis: tuple[int, ...] = ()
    transactional_id: str = ""
    commits: bool | None = None
    skip: int = 0
    times: int = 1
    seconds: float = 0.0

    def matches(self, request: Request) -> bool:
        """Say whether a request is one of those."""
        return (
            (not self.apis or request.api in self.apis)
            and (self.commits is None or request.commits == self.commits)
            and (not self.transactional_id or fnmatchcase(request.transactional_id, self.transactional_id))
        )


class Hit(msgspec.Struct, kw_only=True):
    """One request that a rule was applied to.

    :param client_port: the client's end of the connection, which tells its process.
    :param at_seconds: when, on the machine's monotonic clock.
    :param forwarded: whether the request was passed on to the broker so far.
    :param answer: how the broker's answer begins, correlation id first; None while there is none.
    """

    request: Request
    client_port: int
    at_seconds: float
    forwarded: bool = False
    answer: bytes | None = None


class _Armed:
    """A rule at work."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.seen = 0
        self.hits: list[Hit] = []
        self.released = asyncio.Event()

    def wants(self, request: Request) -> bool:
        """Count a request and say whether it is to be harmed."""
        if self.released.is_set() or not self.rule.matches(request):
            return False
        self.seen += 1
        return self.seen > self.rule.skip and (not self.rule.times or len(self.hits) < self.rule.times)

    async def wait(self) -> None:
        """Return when the rule is released or its time is over."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.released.wait(), self.rule.seconds or None)


#: Has every request that no rule wants.
_UNHARMED = _Armed(Rule(action="watch"))


class KafkaProxy:
    """The proxy; a context manager that runs it.

    :param port: where clients connect; the broker's listener must advertise it.
    :param broker_port: where that listener listens.
    """

    def __init__(self, *, port: int, broker_port: int) -> None:
        self.port = port
        self._broker_port = broker_port
        self._rules: dict[int, _Armed] = {}
        self._last_id = 0
        self._links: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="kafka-proxy", daemon=True)
        self._listening: Future[None] = Future()
        self._stopping = asyncio.Event()

    @classmethod
    def before(cls, broker: Broker) -> Self:
        """Return a proxy for an embedded broker that was given a ``proxy_port``."""
        if broker.proxy_port is None:
            raise ValueError("this broker has no listener for a proxy: give it a proxy_port")
        return cls(port=broker.proxy_port, broker_port=broker.proxy_port + 1)

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers`` of whoever is to be harmed."""
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._listening.result(_ORDER_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    # == orders; each may come from any thread

    def add(self, rule: Rule) -> int:
        """Put a rule in force; of several that want a request, the oldest gets it.

        :return: its number.
        """
        return self._do(lambda: self._add(rule))

    def hits(self, number: int) -> list[Hit]:
        """Return what a rule was applied to so far, also after its release."""
        return self._do(lambda: [msgspec.structs.replace(hit) for hit in self._rules[number].hits])

    def release(self, number: int) -> None:
        """End a rule: what it holds goes on, and it harms nothing more."""
        self._do(lambda: self._rules[number].released.set())

    def clear(self) -> None:
        """Release every rule."""
        for number in self._do(lambda: list(self._rules)):
            self.release(number)

    def cut_all(self) -> int:
        """End every connection there is, both sides; return how many."""
        return self._do(lambda: sum(link.cancel() for link in self._links))

    def _do(self, what: Callable[[], T]) -> T:
        async def call() -> T:
            return what()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(_ORDER_SECONDS)

    def _add(self, rule: Rule) -> int:
        number = len(self._rules) + 1
        self._rules[number] = _Armed(rule)
        return number

    # == the thread

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        try:
            server = await asyncio.start_server(self._accept, HOST, self.port)
        except OSError as error:
            self._listening.set_exception(error)
            return
        async with server:
            self._listening.set_result(None)
            await self._stopping.wait()
            server.close()
            for link in self._links:
                link.cancel()
            await asyncio.gather(*self._links, return_exceptions=True)

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - every coroutine runs in a task
        self._links.add(task)
        opened = [writer]
        try:
            broker = await asyncio.open_connection(HOST, self._broker_port)
            opened.append(broker[1])
            await _Link(self._rules, client=(reader, writer), broker=broker).run()
        except (OSError, asyncio.CancelledError):
            pass  # the broker is down, or the connection is cut on purpose: the client sees its end
        finally:
            self._links.discard(task)
            for side in opened:
                side.close()


class _Link:
    """One client's connection and the one to the broker that stands for it.

    :param rules: by number, in the order in which they were given.
    """

    def __init__(
        self,
        rules: Mapping[int, _Armed],
        *,
        client: tuple[StreamReader, StreamWriter],
        broker: tuple[StreamReader, StreamWriter],
    ) -> None:
        self._rules = rules
        self._from_client, self._to_client = client
        self._from_broker, self._to_broker = broker
        # A client that has left already has no address any more.
        self._client_port: int = (self._to_client.get_extra_info("peername") or (HOST, 0))[1]
        #: Requests that the broker has yet to answer, by correlation id, with the rule that wanted them.
        self._unanswered: dict[int, tuple[_Armed, Hit]] = {}
        self._client_left = False
        self._mute = False

    async def run(self) -> None:
        """Pass frames on until one side leaves or a rule cuts."""
        requests = asyncio.create_task(self._pass_requests())
        answers = asyncio.create_task(self._pass_answers())
        try:
            await asyncio.wait({requests, answers}, return_when=asyncio.FIRST_COMPLETED)
            if requests.done() and requests.result() and self._unanswered:
                # The client has left, but what it sent has its effect, and a rule may want to know which.
                await asyncio.wait({answers}, timeout=_LAST_ANSWERS_SECONDS)
        finally:
            for task in (requests, answers):
                task.cancel()
            outcomes = await asyncio.gather(requests, answers, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _pass_requests(self) -> bool:
        """Pass requests on; return whether the client left, rather than that a rule cut the connection."""
        while (frame := await _frame(self._from_client)) is not None:
            request = parse_request(frame)
            armed, hit = self._taken(request)
            match armed.rule.action if armed else "watch":
                case "hold":
                    await armed.wait()
                case "drop":
                    continue
                case "cut":
                    return False
                case "cut_broker":
                    await self._go_mute(armed)
                    return False
            if request.answered:
                self._unanswered[request.correlation_id] = armed, hit
            await _send(self._to_broker, frame)
            hit.forwarded = True
            if armed.rule.action == "cut_client":
                self._to_client.close()
                await armed.wait()
                return False
        self._client_left = True
        return True

    async def _pass_answers(self) -> None:
        """Pass answers on until the broker leaves, a rule cuts, or nothing more is owed to a client that
        left.
        """
        while not self._client_left or self._unanswered:
            frame = await _frame(self._from_broker)
            if frame is None:
                break
            armed, hit = self._unanswered.pop(unpack(">i", frame[:4])[0])
            hit.answer = frame[:_ANSWER_BYTES]
            match armed.rule.action:
                case "hold_answer":
                    await armed.wait()
                case "drop_answer":
                    continue
                case "cut_answered":
                    return
            with suppress(OSError):  # a client that has left misses its answers
                await _send(self._to_client, frame)
        while self._mute:
            await asyncio.sleep(3600)  # until the requests' side ends it

    def _taken(self, request: Request) -> tuple[_Armed, Hit]:
        hit = Hit(request=request, client_port=self._client_port, at_seconds=time.monotonic())
        for armed in self._rules.values():
            if armed.wants(request):
                armed.hits.append(hit)
                return armed, hit
        return _UNHARMED, hit

    async def _go_mute(self, armed: _Armed) -> None:
        """End the broker's side alone and swallow what the client still sends."""
        self._mute = True
        self._to_broker.close()
        swallowed = asyncio.create_task(self._from_client.read())
        released = asyncio.create_task(armed.wait())
        await asyncio.wait({swallowed, released}, return_when=asyncio.FIRST_COMPLETED)
        swallowed.cancel()
        released.cancel()


async def _frame(reader: StreamReader) -> bytes | None:
    """Read one frame without its length; None when the connection has ended."""
    try:
        (length,) = unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError):
        return None


async def _send(writer: StreamWriter, frame: bytes) -> None:
    writer.write(pack(">i", len(frame)) + frame)
    await writer.drain()
