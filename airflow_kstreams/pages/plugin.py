"""Registers the pages in Airflow, which finds it by the entry point group ``airflow.plugins``.

Every process of Airflow imports this module, schedulers and workers too. So it imports nothing but Airflow's
own plugins, and the pages' application is imported and made at the first request for a page, which only the
API server gets.

Whatever the application answers, also that it cannot be made, passes :class:`PagesApp`: nothing but GET
reaches the application, each answer has the headers that a page in a frame of Airflow needs, and where
Airflow is not one of the proven releases no page is shown.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

#: Path at which the pages are mounted, below the API server's own.
PATH = "/kstreams"
#: Short names: tabs stand on every DAG.
_TAB = "Kafka"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
)
_REPLACED = frozenset(name for name, _ in _HEADERS)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


def _log_failure() -> None:
    from airflow_kstreams.streams.printable import package_log

    package_log(__name__).exception("The pages of airflow-kstreams cannot be shown")


def _made() -> AsgiApp:
    from airflow_kstreams.pages.page_routes import make_application

    return make_application()


class PagesApp:
    """The pages as an ASGI application, made at the first request.

    :param make: makes what answers; it raises where Airflow is not as the pages need it.
    """

    def __init__(self, make: Callable[[], AsgiApp] = _made) -> None:
        self._make = make
        self._app: AsgiApp | None = None
        self._failed = False
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        send = _with_headers(send)
        if scope["method"] != "GET":
            await _answer(send, 405, "Pages are only read.", [(b"allow", b"GET")])
            return
        app = self._ready()
        if app is None:
            await _answer(send, 503, "The pages cannot be shown here. The log of the API server says why.")
            return
        await app(scope, receive, send)

    def _ready(self) -> AsgiApp | None:
        """Return what answers; None, with an entry in the log, where it cannot be made."""
        with self._lock:
            if self._app is None and not self._failed:
                try:
                    self._app = self._make()
                except Exception:
                    self._failed = True
                    _log_failure()
            return self._app


def _with_headers(send: Send) -> Send:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            given = [pair for pair in message.get("headers", ()) if pair[0].lower() not in _REPLACED]
            message = {**message, "headers": [*given, *_HEADERS]}
        await send(message)

    return sending


async def _answer(send: Send, status: int, text: str, more: Iterable[tuple[bytes, bytes]] = ()) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


def pages_base() -> str:
    """Return the path of the pages as browsers see it: that of ``[api] base_url``, and their own."""
    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/") + PATH


def views(base: str) -> list[dict[str, Any]]:
    """Return the places in Airflow's interface that show pages.

    :param base: path of the pages, as browsers see it.
    """
    shown = {
        "icon": f"{base}/static/icon.svg",
        "icon_dark_mode": f"{base}/static/icon-dark.svg",
    }
    return [
        {
            "name": _TAB,
            "href": f"{base}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "kstreams",
            **shown,
        },
        {
            "name": _TAB,
            "href": f"{base}/dags/{{DAG_ID}}",
            "destination": "dag",
            "url_route": "kstreams-dag",
            **shown,
        },
        {
            "name": _TAB,
            "href": f"{base}/dags/{{DAG_ID}}/runs/{{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "kstreams-run",
            **shown,
        },
    ]


class KStreamsPlugin(AirflowPlugin):
    """The pages of airflow-kstreams, and where Airflow shows them."""

    name = "kstreams"
    fastapi_apps = [{"app": PagesApp(), "url_prefix": PATH, "name": "kstreams"}]
    external_views = views(pages_base())
