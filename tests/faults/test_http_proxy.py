"""The HTTP proxy of the rounds with tables does to a real server's requests what its rules say."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dev.proxy.http_proxy import HttpProxy, HttpRule


@dataclass
class Store:
    """A server that keeps what is put; an object that is there is not replaced."""

    objects: dict[str, bytes] = field(default_factory=dict)


class _Handler(BaseHTTPRequestHandler):
    store: Store
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        there = self.path in self.store.objects
        self.store.objects.setdefault(self.path, body)
        self._answer(412 if there else 200, b"")

    def do_GET(self) -> None:
        self._answer(200, self.store.objects[self.path])

    def do_HEAD(self) -> None:
        self._answer(200, self.store.objects[self.path])

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", "one")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def proxy(store: Store) -> Iterator[HttpProxy]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": store}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    with HttpProxy(upstream_port=server.server_address[1]) as proxy:
        yield proxy
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def ask(proxy: HttpProxy, method: str, path: str, body: bytes | None = None) -> Answer:
    with closing(connected(proxy)) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read())


def connected(proxy: HttpProxy) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=20)


def test_requests_pass_with_bodies_and_headers_both_ways(proxy: HttpProxy) -> None:
    content = bytes(range(256)) * 100
    assert ask(proxy, "PUT", "/a?x=1", content).status == 200
    assert ask(proxy, "PUT", "/a?x=1", b"other").status == 412
    answer = ask(proxy, "GET", "/a?x=1")
    assert (answer.body, answer.headers["ETag"]) == (content, "one")
    head = ask(proxy, "HEAD", "/a?x=1")
    assert (head.headers["Content-Length"], head.body) == (str(len(content)), b"")


def test_request_is_lost_or_its_answer_is_after_those_that_pass(proxy: HttpProxy, store: Store) -> None:
    lost = proxy.add(HttpRule(action="drop", method="PUT", path="/log/", skip=1))
    unanswered = proxy.add(HttpRule(action="drop_answer", method="PUT", path="/log/2$"))
    assert ask(proxy, "PUT", "/log/0", b"0").status == 200
    for name in ("1", "2"):
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            ask(proxy, "PUT", f"/log/{name}", b"")
    assert list(store.objects) == ["/log/0", "/log/2"]
    assert [hit.status for hit in proxy.hits(lost) + proxy.hits(unanswered)] == [None, 200]
    assert ask(proxy, "PUT", "/log/1", b"1").status == 200


@pytest.mark.parametrize("action", ["hold", "hold_answer"])
def test_request_that_is_held_takes_effect_later_though_its_client_has_left(
    proxy: HttpProxy, store: Store, wait_until: Callable[..., Any], action: Any
) -> None:
    number = proxy.add(HttpRule(action=action, method="PUT", path="^/held$"))
    connection = connected(proxy)
    connection.request("PUT", "/held", b"late")
    wait_until(
        lambda: proxy.hits(number) and (action == "hold" or proxy.hits(number)[0].status), "a held request"
    )
    connection.close()
    assert ("/held" in store.objects) is (action == "hold_answer")
    assert ask(proxy, "PUT", "/other", b"").status == 200
    proxy.release(number)
    wait_until(lambda: proxy.hits(number)[0].status == 200, "its effect")
    assert store.objects["/held"] == b"late"


def test_connection_ends_when_the_server_is_down() -> None:
    with (
        HttpProxy(upstream_port=1) as proxy,
        pytest.raises((http.client.RemoteDisconnected, ConnectionError)),
    ):
        ask(proxy, "GET", "/a")
