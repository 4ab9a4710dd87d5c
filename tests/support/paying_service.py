"""A service over HTTP on loopback that takes each idempotency key once, and may keep answers back."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Names the process that calls; for tests that kill it.
PROCESS_HEADER = "X-Process"
#: A held answer goes out after this long, whatever a test forgot.
_HELD_SECONDS = 120.0


@dataclass
class PayingService:
    """See the module.

    :ivar url: of the service.
    :ivar requests: idempotency key -> how often it was asked with it.
    :ivar charges: idempotency key -> what was asked first.
    :ivar held: process ids of those whose answers are kept back.
    :ivar asked: process id, and what was asked for, in the order in which it came; when it was away, too.
    :ivar away: says whether it is away for who asks for this.
    """

    url: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    charges: dict[str, Any] = field(default_factory=dict)
    held: list[int] = field(default_factory=list)
    asked: list[tuple[int, Any]] = field(default_factory=list)
    away: Callable[[Any], bool] = lambda asked: False
    _most: int | None = None
    _open: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hold_after(self, charges: int) -> None:
        """Answer what is kept back, and keep answers back once so many charges were taken: they have taken
        effect.
        """
        self.let_go()
        with self._lock:
            self._open = threading.Event()
            self._most = charges
            self.held.clear()

    def let_go(self) -> None:
        """Answer all."""
        with self._lock:
            self._most = None
            self._open.set()

    @property
    def repeated(self) -> int:
        """Return how many requests came again."""
        return sum(self.requests.values()) - len(self.charges)

    def take(self, key: str, asked: Any, process: int) -> int:
        """Take a request, and return the number of its charge."""
        with self._lock:
            self.requests[key] += 1
            self.charges.setdefault(key, asked)
            number = list(self.charges).index(key)
            holds, opened = self._most is not None and len(self.charges) > self._most, self._open
            if holds:
                self.held.append(process)
        if holds:
            opened.wait(_HELD_SECONDS)
        return number


@contextmanager
def paying_service() -> Iterator[PayingService]:
    """Run a service for the duration of the block."""
    service = PayingService()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            process = int(self.headers.get(PROCESS_HEADER, "0"))
            service.asked.append((process, asked))
            if away := service.away(asked):
                answer = b"away"
            else:
                number = service.take(self.headers["Idempotency-Key"], asked, process)
                answer = json.dumps({"id": number}).encode()
            try:
                self.send_response(503 if away else 200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except ConnectionError:
                self.close_connection = True  # who asked is dead

        def log_message(self, *_: object) -> None:
            pass  # a line for each request

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # connections of killed processes are reset

    with Server(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield service
        finally:
            service.let_go()
            server.shutdown()
            thread.join()
