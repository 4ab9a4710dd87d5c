"""A REST catalogue of Iceberg on this machine, over a SQL catalogue, that can lose, delay and fail answers.

It serves what a client needs for tables: config, tokens, namespaces, and load, create, commit and drop of
tables. A test says what becomes of the next request of a kind by :meth:`RestCatalogServer.next`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlparse

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

Kind = Literal["config", "load", "create", "commit", "token"]
#: lose: done, and never answered. refuse: not done, and answered with the code. fail: done, and answered with
#: the code. delay: not done now, and never answered; :meth:`RestCatalogServer.do_delayed` does it. hang: not
#: done, and the connection stays open without an answer.
What = Literal["lose", "refuse", "fail", "delay", "hang"]
_STATUS = {
    CommitFailedException: 409,
    TableAlreadyExistsError: 409,
    NamespaceAlreadyExistsError: 409,
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    ValueError: 400,
}


@dataclass
class RestCatalogServer:
    """The server.

    :param catalog: the catalogue that it serves.
    :param url: its address.
    """

    catalog: SqlCatalog
    url: str = ""
    #: What each load of a table says besides, e.g. credentials of its storage.
    table_config: dict[str, str] = field(default_factory=dict)
    #: ``id:secret`` -> refuse requests without a token that was given for it; empty: no tokens.
    credential: str = ""
    valid_tokens: set[str] = field(default_factory=set)
    #: Kinds of requests that arrived, in order.
    seen: list[str] = field(default_factory=list)
    _planned: list[tuple[str, What, int]] = field(default_factory=list)
    _delayed: list[Callable[[], Any]] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _released: threading.Event = field(default_factory=threading.Event)

    def next(self, kind: Kind, what: What, status: int = 500) -> None:
        """Say what becomes of the next request of a kind that has no such plan yet."""
        self._planned.append((kind, what, status))

    def do_delayed(self) -> list[int]:
        """Do what was delayed, and return the status that each request got."""
        waiting, self._delayed = self._delayed, []
        return [self._done(each)[0] for each in waiting]

    def expire_tokens(self) -> None:
        """Let no token that was given be valid any more."""
        self.valid_tokens.clear()

    def release(self) -> None:
        """Let requests that hang end."""
        self._released.set()

    def answer(self, kind: str, work: Callable[[], Any], token: str) -> tuple[int, Any] | None:
        """Return status and body for a request; None to close its connection without an answer."""
        with self._lock:
            self.seen.append(kind)
            plan = next((each for each in self._planned if each[0] == kind), None)
            if plan is not None:
                self._planned.remove(plan)
        if self.credential and kind not in {"token"} and token not in self.valid_tokens:
            return 401, _error(401, "the token is not valid")
        match plan:
            case None:
                return self._done(work)
            case (_, "lose", _):
                self._done(work)
                return None
            case (_, "refuse", status):
                return status, _error(status, "planned")
            case (_, "fail", status):
                self._done(work)
                return status, _error(status, "planned")
            case (_, "delay", _):
                self._delayed.append(work)
                return None
            case _:
                self._released.wait(60)
                return None

    def _done(self, work: Callable[[], Any]) -> tuple[int, Any]:
        try:
            with self._lock:
                return 200, work()
        except tuple(_STATUS) as error:
            status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
            return status, _error(status, str(error), type(error).__name__)

    def token(self, form: str) -> dict[str, Any]:
        """Give a token for a credential in a form."""
        fields = dict(part.split("=", 1) for part in form.split("&"))
        given = f"{fields.get('client_id', '')}:{fields.get('client_secret', '')}"
        if given != self.credential:
            raise ValueError("the credential is not known")
        token = f"token-{len(self.seen)}"
        self.valid_tokens.add(token)
        return {"access_token": token, "token_type": "bearer", "expires_in": 3600}

    def load(self, identifier: tuple[str, ...]) -> dict[str, Any]:
        """Return a table as an answer has it."""
        return self._described(self.catalog.load_table(identifier))

    def create(self, namespace: tuple[str, ...], body: bytes) -> dict[str, Any]:
        """Create a table."""
        absent = {"location": None, "partition-spec": None, "write-order": None}
        request = CreateTableRequest.model_validate(absent | json.loads(body))
        made = self.catalog.create_table(
            (*namespace, request.name),
            request.table_schema,
            location=request.location,
            partition_spec=request.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            properties=request.properties,
        )
        return self._described(made)

    def commit(self, identifier: tuple[str, ...], body: bytes) -> dict[str, Any]:
        """Commit to a table."""
        request = CommitTableRequest.model_validate_json(body)
        table = self.catalog.load_table(identifier)
        done = self.catalog.commit_table(table, request.requirements, request.updates)
        return dict(json.loads(done.model_dump_json(by_alias=True)))

    def _described(self, table: Table) -> dict[str, Any]:
        metadata = json.loads(table.metadata.model_dump_json(by_alias=True))
        location = table.metadata_location
        return {"metadata-location": location, "metadata": metadata, "config": self.table_config}


def _error(status: int, message: str, kind: str = "Planned") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": status}}


class _Handler(BaseHTTPRequestHandler):
    server_of: RestCatalogServer

    def do_GET(self) -> None:
        self._handle("GET")

    def do_POST(self) -> None:
        self._handle("POST")

    def do_DELETE(self) -> None:
        self._handle("DELETE")

    def do_HEAD(self) -> None:
        self._handle("HEAD")

    def log_message(self, *arguments: Any) -> None:
        pass

    def _handle(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        parts = [unquote(part) for part in urlparse(self.path).path.strip("/").split("/")][1:]
        kind, work = self._work(method, parts, body)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        answer = self.server_of.answer(kind, work, token)
        if answer is None:
            self.close_connection = True
            self.connection.close()
            return
        status, said = answer
        payload = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        if method != "HEAD":
            self.wfile.write(payload)

    def _work(self, method: str, parts: list[str], body: bytes) -> tuple[str, Callable[[], Any]]:
        server, catalog = self.server_of, self.server_of.catalog
        match method, parts:
            case "GET", ["config"]:
                return "config", lambda: {"defaults": {}, "overrides": {}}
            case "POST", ["oauth", "tokens"]:
                return "token", lambda: server.token(unquote(body.decode()))
            case "POST", ["namespaces"]:
                names = tuple(json.loads(body)["namespace"])
                return "namespace", lambda: [catalog.create_namespace(names), {"namespace": names}][1]
            case "GET", ["namespaces", name]:
                return "namespace", lambda: {
                    "namespace": name.split("\x1f"),
                    "properties": catalog.load_namespace_properties(tuple(name.split("\x1f"))),
                }
            case "POST", ["namespaces", name, "tables"]:
                return "create", lambda: server.create(tuple(name.split("\x1f")), body)
            case "GET", ["namespaces", name, "tables", table]:
                return "load", lambda: server.load((*name.split("\x1f"), table))
            case "POST", ["namespaces", name, "tables", table]:
                return "commit", lambda: server.commit((*name.split("\x1f"), table), body)
            case "DELETE", ["namespaces", name, "tables", table]:
                return "drop", lambda: catalog.drop_table((*name.split("\x1f"), table)) or {}
            case _:
                raise AssertionError(f"the catalogue is asked {method} {parts}")


@contextmanager
def rest_catalog(catalog: SqlCatalog, *, port: int = 0) -> Iterator[RestCatalogServer]:
    """Serve a catalogue until the block ends.

    :param port: where; 0 for any.
    """
    server = RestCatalogServer(catalog)
    handler = type("Handler", (_Handler,), {"server_of": server})
    http = ThreadingHTTPServer(("127.0.0.1", port), handler)
    http.daemon_threads = True
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, daemon=True, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.release()
        http.shutdown()
        http.server_close()
        thread.join()
