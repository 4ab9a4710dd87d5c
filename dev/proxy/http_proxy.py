r"""An HTTP proxy before one server that knows single requests, and does harm to those that a rule names.

It stands before an object store or a catalogue as :mod:`dev.proxy.kafka_proxy` does before a broker, as
threads of this process::

    with HttpProxy(upstream_port=store.port) as proxy:
        held = proxy.add(HttpRule(action="hold", method="PUT", path=r"/_delta_log/\d+\.json$"))
        ...
        assert proxy.hits(held)
        proxy.release(held)

What a rule does to a request:

- ``watch``: nothing, it only counts.
- ``hold``: the request waits until the rule is released, and goes on then, even if its client has left.
- ``hold_answer``: the request takes effect, and its answer waits until the rule is released.
- ``drop``: the server never sees the request; the connection ends without an answer.
- ``drop_answer``: the request takes effect, and the connection ends without an answer.

A server that is down is shown to clients as one that ends their connections.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

HttpAction = Literal["watch", "hold", "hold_answer", "drop", "drop_answer"]

_HOST = "127.0.0.1"
_SERVER_SECONDS = 60.0
#: Headers of one connection, and lengths, which each side of the proxy says anew.
_OF_CONNECTIONS = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRule:
    """Which requests to harm, and how.

    :param action: see the module.
    :param method: of the request.
    :param path: a regular expression that is found in the path, without the query.
    :param skip: how many matching requests pass unharmed first.
    :param times: how many are harmed then.
    """

    action: HttpAction
    method: str
    path: str
    skip: int = 0
    times: int = 1


@dataclass(slots=True, kw_only=True)
class HttpHit:
    """One request that a rule was applied to.

    :param at_seconds: when, on the machine's monotonic clock.
    :param status: the server's answer; None while there is none.
    """

    path: str
    at_seconds: float
    status: int | None = None


@dataclass(slots=True, kw_only=True)
class _Armed:
    """A rule at work."""

    rule: HttpRule
    seen: int = 0
    hits: list[HttpHit] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def wants(self, method: str, path: str) -> bool:
        """Count a request and say whether it is to be harmed."""
        rule = self.rule
        if self.released.is_set() or method != rule.method or not re.search(rule.path, path):
            return False
        self.seen += 1
        return rule.skip < self.seen and len(self.hits) < rule.times


class HttpProxy:
    """The proxy; a context manager that runs it.

    :param upstream_port: where the server listens, on this machine.
    """

    def __init__(self, *, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        self._rules: list[_Armed] = []
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._http = _Server((_HOST, 0), handler)
        self._thread = threading.Thread(
            target=self._http.serve_forever, name="http-proxy", daemon=True, kwargs={"poll_interval": 0.05}
        )

    @property
    def url(self) -> str:
        """Address of whatever is to be harmed."""
        return f"http://{_HOST}:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def add(self, rule: HttpRule) -> int:
        """Put a rule in force; of several that want a request, the oldest gets it.

        :return: its number.
        """
        with self._lock:
            self._rules.append(_Armed(rule=rule))
            return len(self._rules) - 1

    def hits(self, number: int) -> list[HttpHit]:
        """Return what a rule was applied to so far, also after its release."""
        with self._lock:
            return list(self._rules[number].hits)

    def release(self, number: int) -> None:
        """End a rule: what it holds goes on, and it harms nothing more."""
        with self._lock:
            self._rules[number].released.set()

    def clear(self) -> None:
        """Release every rule."""
        with self._lock:
            for armed in self._rules:
                armed.released.set()

    def armed(self, method: str, path: str) -> tuple[HttpRule, HttpHit, threading.Event] | None:
        """Return the rule that wants a request, the hit, and what says that the rule is released."""
        with self._lock:
            for armed in self._rules:
                if armed.wants(method, path):
                    hit = HttpHit(path=path, at_seconds=time.monotonic())
                    armed.hits.append(hit)
                    return armed.rule, hit, armed.released
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that have left."""


class _Handler(BaseHTTPRequestHandler):
    proxy: HttpProxy
    protocol_version = "HTTP/1.1"
    # An answer in one piece: the second of two would wait 40 ms for the client's word that it has the first.
    wbufsize = -1
    disable_nagle_algorithm = True

    def handle_expect_100(self) -> bool:
        said = super().handle_expect_100()
        self.wfile.flush()
        return said

    def log_message(self, *arguments: Any) -> None:
        pass

    def _pass_on(self) -> None:
        body = self._body()
        found = self.proxy.armed(self.command, self.path.partition("?")[0])
        action: HttpAction = "watch" if found is None else found[0].action
        if found is not None and action == "hold":
            found[2].wait()
        answer = None if action == "drop" else self._answered(body)
        if found is not None:
            found[1].status = None if answer is None else answer[0]
            if action == "hold_answer":
                found[2].wait()
        if answer is None or action in {"drop", "drop_answer"}:
            self.close_connection = True
            return
        self._send(*answer)

    def _body(self) -> bytes:
        if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answered(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes] | None:
        """Ask the server; None when it is down, or ends the connection."""
        server = http.client.HTTPConnection(_HOST, self.proxy.upstream_port, timeout=_SERVER_SECONDS)
        kept = [(name, text) for name, text in self.headers.items() if name.lower() not in _OF_CONNECTIONS]
        try:
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, text in kept:
                server.putheader(name, text)
            server.putheader("Content-Length", str(len(body)))
            server.endheaders(body)
            answer = server.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            server.close()

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, text in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = text
            elif name.lower() not in _OF_CONNECTIONS:
                self.send_header(name, text)
        if status not in {204, 304}:
            self.send_header("Content-Length", length)
        with suppress(OSError):
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on
