"""Where the tables of a scene are: a SQL catalogue and a folder, or a REST catalogue and an object store.

The servers of the second stand behind proxies of their own, which hold and lose requests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

from dev.chaos_rounds.processes import Helper
from dev.chaos_rounds.tables.names import NAMESPACE, OTHER, TableName
from dev.chaos_rounds.tables.plan import PlaceName
from dev.proxy.http_proxy import HttpAction, HttpHit, HttpProxy, HttpRule
from dev.servers.embedded import free_port
from tests.support.tables.object_store import object_stores

_ROOT = Path(__file__).parents[3]
_WRITER_SECONDS = 30.0
#: Of tables as files in a folder: what each commit adds one of.
_COMMITS = {"iceberg": "metadata/*.metadata.json", "delta": "_delta_log/*.json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The servers of a place, and what stands before them.

    :param catalog: proxy before the catalogue.
    :param store: proxy before the object store.
    :param kill: ends the catalogue by SIGKILL.
    :param start: starts it again.
    """

    catalog: HttpProxy
    store: HttpProxy
    kill: Callable[[], None]
    start: Callable[[], None]

    def rule_of_commit(self, table: TableName, action: HttpAction) -> tuple[HttpProxy, HttpRule]:
        """Return a rule for the next commit to a table, and the proxy that it is for."""
        if table.format == "iceberg":
            path = rf"/namespaces/{NAMESPACE}/tables/{table.name}$"
            return self.catalog, HttpRule(action=action, method="POST", path=path)
        path = rf"/{table.name}/_delta_log/\d+\.json$"
        return self.store, HttpRule(action=action, method="PUT", path=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place.

    :param settings: of the application's connection.
    :param direct: the same without proxies, for other writers.
    :param root: of Delta tables; a folder or URI.
    :param lake: what the verifier has to know of it.
    :param served: None for a SQL catalogue and a folder.
    """

    folder: Path
    settings: Mapping[str, str]
    direct: Mapping[str, str]
    root: str
    lake: Mapping[str, str]
    served: Served | None = None

    @property
    def config(self) -> Path:
        """File of the connection's settings."""
        return self.folder / "tables.json"

    def commits(self, table: TableName) -> int:
        """Count the commits that the log of a table in a folder has."""
        folder = Path(self.root) / (table.name if table.format == "delta" else f"{NAMESPACE}/{table.name}")
        return sum(1 for _ in folder.glob(_COMMITS[table.format]))

    def write_as_other(self, table: TableName, number: int) -> None:
        """Let another writer append a row.

        :raises RuntimeError: it failed.
        """
        module = "dev.chaos_rounds.tables.other_writer"
        settings = json.dumps({**self.direct, "root": self.root})
        done = subprocess.run(
            [sys.executable, "-m", module, table.format, table.name, f"{OTHER}{number}", settings],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=_WRITER_SECONDS,
        )
        if done.returncode:
            raise RuntimeError(f"the other writer failed: {done.stderr[-2000:]}")


@contextmanager
def opened(name: PlaceName, folder: Path) -> Iterator[Place]:
    """Open a place in a folder."""
    with ExitStack() as stack:
        place = _folder_place(folder) if name == "sql" else _served_place(folder, stack)
        place.config.write_text(json.dumps(dict(place.settings)))
        yield place


def reached(proxy: HttpProxy, rule: int) -> HttpHit | None:
    """Return the request that a rule has harmed, None while there is none."""
    hits = proxy.hits(rule)
    return hits[0] if hits else None


def _folder_place(folder: Path) -> Place:
    root = folder / "lake"
    root.mkdir()
    settings = {
        "iceberg.type": "sql",
        "iceberg.uri": f"sqlite:///{folder}/catalog.db",
        "iceberg.warehouse": f"file://{root}",
    }
    lake = {"catalog": f"{folder}/catalog.db", "root": str(root)}
    return Place(folder=folder, settings=settings, direct=settings, root=str(root), lake=lake)


def _served_place(folder: Path, stack: ExitStack) -> Place:
    store = stack.enter_context(object_stores()).bucket(folder)
    before_store = stack.enter_context(HttpProxy(upstream_port=_port(store.url)))
    port = free_port(1)
    before_catalog = stack.enter_context(HttpProxy(upstream_port=port))
    properties = {
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"s3://{store.bucket}/lake",
        **{name.removeprefix("iceberg."): text for name, text in store.iceberg.items()},
    }
    servers: list[Helper] = []

    def start() -> None:
        log = folder / f"rest_server-{len(servers) + 1}.log"
        servers.append(Helper("tables.rest_server", [str(port), json.dumps(properties)], log=log))
        servers[-1].ask("up")

    start()
    stack.callback(lambda: servers[-1].stop())
    root = f"s3://{store.bucket}/lake"
    served = Served(catalog=before_catalog, store=before_store, kill=lambda: servers[-1].kill(), start=start)
    direct = {
        "iceberg.type": "rest",
        "iceberg.uri": f"http://127.0.0.1:{port}",
        **store.iceberg,
        **store.delta,
    }
    settings = {name: before_store.url if text == store.url else text for name, text in direct.items()} | {
        "iceberg.uri": before_catalog.url
    }
    lake = {
        "catalog": f"{folder}/catalog.db",
        "root": root,
        "endpoint": store.url,
        "key": store.iceberg["iceberg.s3.access-key-id"],
        "secret": store.iceberg["iceberg.s3.secret-access-key"],
        "copy": f"{folder}/copy",
    }
    return Place(folder=folder, settings=settings, direct=direct, root=root, lake=lake, served=served)


def _port(url: str) -> int:
    port = urlparse(url).port
    if port is None:
        raise ValueError(f"{url} has no port")
    return port
