"""A schema registry over HTTP, as far as a test tells it what to answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any


@dataclass(slots=True)
class Answers:
    """What the server answers, by method and path; anything else is 404 as a registry says it.

    An answer is a status and a body, or a function of a request's ``Authorization`` and body.

    :param asked: method, path and ``Authorization`` of each request so far.
    """

    by_request: dict[tuple[str, str], tuple[int, Any] | Callable[[str, str], tuple[int, Any]]] = field(
        default_factory=dict
    )
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    url: str = ""


@contextmanager
def registry_server() -> Iterator[Answers]:
    """Run a server on a loopback port."""
    answers = Answers()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(answers))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    answers.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield answers
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


#: A client that waits so long has no bound, and its test is to fail, not to hang.
_ENDLESS_SECONDS = 8.0


@contextmanager
def endless_server(beginning: bytes, again: bytes, *, pause_seconds: float = 0.0) -> Iterator[str]:
    """Run a server that answers every request with bytes without an end, for some seconds, and give its
    address.

    :param beginning: written at once.
    :param again: written again and again.
    :param pause_seconds: pause before each time.
    """
    stopped = threading.Event()

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            deadline = time.monotonic() + _ENDLESS_SECONDS
            with suppress(OSError):
                self.request.recv(65_536)
                self.request.sendall(beginning)
                while not stopped.wait(pause_seconds) and time.monotonic() < deadline:
                    self.request.sendall(again)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            stopped.set()
            server.shutdown()
            thread.join()


def _handler(answers: Answers) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST", self.rfile.read(int(self.headers["Content-Length"])).decode())

        def _answer(self, method: str, given: str = "") -> None:
            path = self.path.partition("?")[0]
            authorization = self.headers.get("Authorization", "")
            answers.asked.append((method, path, authorization))
            not_found = (404, {"error_code": 40403, "message": "Schema not found"})
            answer = answers.by_request.get((method, path), not_found)
            status, body = answer(authorization, given) if callable(answer) else answer
            text = body if isinstance(body, str | bytes) else json.dumps(body)
            data = text.encode() if isinstance(text, str) else text
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    return Handler
