"""Orders to a :class:`dev.proxy.kafka_proxy.KafkaProxy` from another process: JSON lines ask and answer.

::

    with KafkaProxy(...) as proxy, ProxyControl(proxy) as control:   # in one process
        start_another_process(control.port)

    orders = RemoteProxy(port)                                       # in the other
    number = orders.add(Rule(action="drop", apis=(Api.END_TXN,)))
"""

from __future__ import annotations

import socket
import socketserver
import threading
from typing import Any, Literal, Self

import msgspec

from dev.proxy.kafka_proxy import Hit, KafkaProxy, Rule
from dev.servers.embedded import HOST

_SECONDS = 30.0


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    do: Literal["add", "hits", "release", "clear", "cut_all"]
    rule: Rule | None = None
    number: int = 0


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        for line in self.rfile:
            try:
                answer = {"result": self._obey(msgspec.json.decode(line, type=_Order))}
            except (msgspec.MsgspecError, LookupError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            self.wfile.write(msgspec.json.encode(answer) + b"\n")

    def _obey(self, order: _Order) -> Any:
        proxy = self.server.proxy
        match order.do:
            case "add" if order.rule is not None:
                return proxy.add(order.rule)
            case "hits":
                return proxy.hits(order.number)
            case "release":
                return proxy.release(order.number)
            case "clear":
                return proxy.clear()
            case "cut_all":
                return proxy.cut_all()
        raise LookupError("add needs a rule")


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, proxy: KafkaProxy) -> None:
        super().__init__((HOST, 0), _Handler)
        self.proxy = proxy


class ProxyControl:
    """Listens for orders on a loopback port of the system's choice; a context manager.

    :ivar port: that port.
    """

    def __init__(self, proxy: KafkaProxy) -> None:
        self._server = _Server(proxy)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="proxy-control", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class RemoteProxy:
    """The orders of :class:`dev.proxy.kafka_proxy.KafkaProxy`, given from another process.

    :param port: of the :class:`ProxyControl`.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    def add(self, rule: Rule) -> int:
        """Put a rule in force and return its number."""
        return msgspec.convert(self._give(_Order(do="add", rule=rule)), int)

    def hits(self, number: int) -> list[Hit]:
        """Return what a rule was applied to so far."""
        return msgspec.convert(self._give(_Order(do="hits", number=number)), list[Hit])

    def release(self, number: int) -> None:
        """End a rule; what it holds goes on."""
        self._give(_Order(do="release", number=number))

    def clear(self) -> None:
        """Release every rule."""
        self._give(_Order(do="clear"))

    def cut_all(self) -> int:
        """End every connection there is and return how many."""
        return msgspec.convert(self._give(_Order(do="cut_all")), int)

    def _give(self, order: _Order) -> Any:
        with socket.create_connection((HOST, self._port), timeout=_SECONDS) as connection:
            connection.sendall(msgspec.json.encode(order) + b"\n")
            with connection.makefile("rb") as answers:
                answer: dict[str, Any] = msgspec.json.decode(answers.readline())
        if "error" in answer:
            raise LookupError(answer["error"])
        return answer["result"]
