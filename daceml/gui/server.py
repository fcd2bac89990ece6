"""Serves a page on this machine, to whoever has its address.

Nobody else gets an answer: the server listens on the loopback interface only, and takes no request without
the token, with another Host than its own (a name that an attacker's DNS points here), or with a foreign
Origin (a page of another site that sends requests here).
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Thread
from typing import Any, Protocol, Self
from urllib.parse import SplitResult, parse_qs, urlsplit

from daceml.errors import DacemlError, PageError, first_line
from daceml.gui.page import AGAIN_POLICY, SCRIPTS, STYLE, again_page, asset, live_page

log = logging.getLogger(__name__)

TOKEN_HEADER = "X-Daceml-Token"
_ADDRESS = "127.0.0.1"
_HTTP_PORT = 80  # which browsers leave out
_MOST_BYTES = 2**20  # of a request
_MOST_DIGITS = 20  # of a number in a header, leading zeros included
_MOST_THREADS = 32  # a browser opens six connections or less
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_NO_TOKEN = "the token is wrong: open the address that daceml gui printed"
_TYPES = {"css": "text/css", "js": "text/javascript", "json": "application/json", "html": "text/html"}

Told = dict[str, Any]


class Shown(Protocol):
    """What a server shows."""

    title: str
    actions: Mapping[str, Callable[[Told], Told]]
    """Name -> what it does with what a page sends, and the answer; raises DacemlError where it refuses."""

    def view(self, known: str = "") -> Told:
        """What is to be seen now.

        Args:
            known: what a view before called its "graph"; where that is the same, it may be left out.
        """
        ...


class PageServer:
    """Serves one page until it is closed.

    Args:
        port: 0 takes a free one.
    Attributes:
        url: of the page, with its token.
    Raises:
        PageError: the port is taken.
    """

    def __init__(self, shown: Shown, *, port: int = 0) -> None:
        self.shown, self.token = shown, secrets.token_urlsafe(24)
        try:
            self._server = _Server((_ADDRESS, port), _handler(self))
        except (OSError, OverflowError) as error:
            raise PageError(
                f"port {port} cannot be used", why=str(error), fix="leave --port out, or give a free one"
            ) from error
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://{_ADDRESS}:{self.port}/?token={self.token}"
        self._thread = Thread(
            target=self._server.serve_forever, args=(0.05,), name="daceml-page", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self) -> None:
        """Until the process is interrupted."""
        self._thread.join()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names by which a browser of this machine, or one behind a forwarded port, may call it."""
        named = (f"{_ADDRESS}:{self.port}", f"localhost:{self.port}")
        return (*named, _ADDRESS, "localhost") if self.port == _HTTP_PORT else named


class _Server(ThreadingHTTPServer):
    """One thread for each connection, of which there are so many at most; others are told to come again."""

    request_queue_size = 2 * _MOST_THREADS

    def __init__(self, *given: Any) -> None:
        self._free = BoundedSemaphore(_MOST_THREADS)
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except BaseException:  # no thread could be started
                self._free.release()
                raise
        else:
            with suppress(OSError):
                request.settimeout(1.0)
                request.sendall(_BUSY)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if isinstance(sys.exception(), ConnectionError):
            log.debug("a browser went away", exc_info=True)
        else:
            super().handle_error(request, client_address)


def _handler(page: PageServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One request."""

        protocol_version = "HTTP/1.1"
        timeout = 60.0  # of a connection that says nothing
        server_version, sys_version = "daceml", ""

        def do_GET(self) -> None:
            if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
                self.close_connection = True  # nobody reads what comes with it
            parts = self._parts()
            if parts is None:
                return
            name = parts.path.removeprefix("/")
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            given = query.get("token", "") or self.headers.get(TOKEN_HEADER, "")
            if not self._may(given, reloaded=name == "" and not given):
                return
            if name == "":
                self._answer(HTTPStatus.OK, live_page(page.shown.title, page.token), "html")
            elif name in (STYLE, *SCRIPTS):
                self._answer(HTTPStatus.OK, asset(name), name.rpartition(".")[2])
            elif name == "view.json":
                self._tell(lambda: page.shown.view(query.get("graph", "")))
            else:
                self._refuse(HTTPStatus.NOT_FOUND, f"there is no {parts.path}")

        def do_POST(self) -> None:
            parts = self._parts()
            if parts is None or not self._may(self.headers.get(TOKEN_HEADER, "")):
                return
            body = self._body()
            if body is None:
                return
            name = parts.path.removeprefix("/")
            action = page.shown.actions.get(name)
            if action is None:
                self._refuse(HTTPStatus.NOT_FOUND, f"there is no action /{name}")
                return
            if self.headers.get_content_type() != "application/json":
                self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "an action takes application/json")
                return
            try:
                told = json.loads(body or b"{}")
            except (ValueError, RecursionError) as error:
                self._refuse(HTTPStatus.BAD_REQUEST, f"the request is no JSON: {first_line(error)}")
                return
            if not isinstance(told, dict):
                self._refuse(HTTPStatus.BAD_REQUEST, "the request is no JSON object")
                return
            self._tell(lambda: action(told))

        def _parts(self) -> SplitResult | None:
            """Of what is asked for; None if refused."""
            try:
                return urlsplit(self.path)
            except ValueError as error:
                self._refuse(HTTPStatus.BAD_REQUEST, f"the request has no address: {error}")
                return None

        def _body(self) -> bytes | None:
            """What was sent; None if refused."""
            length = self.headers.get("Content-Length", "0")
            if "Transfer-Encoding" in self.headers:
                self._refuse(HTTPStatus.LENGTH_REQUIRED, "a request says how long it is")
                return None
            if not length.isdecimal() or len(length) > _MOST_DIGITS or int(length) > _MOST_BYTES:
                self._refuse(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has {_MOST_BYTES} bytes at most"
                )
                return None
            return self.rfile.read(int(length))

        def _may(self, given: str, *, reloaded: bool = False) -> bool:
            """Whether it is answered.

            Args:
                reloaded: it may be a tab that knows the token, and took it out of its address.
            """
            host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
            if host not in page.hosts:
                self._refuse(HTTPStatus.FORBIDDEN, "this page has another Host")
            elif origin is not None and origin not in [f"http://{host}" for host in page.hosts]:
                self._refuse(HTTPStatus.FORBIDDEN, "this page does not answer other sites")
            elif reloaded:
                self.close_connection = True
                self._answer(HTTPStatus.FORBIDDEN, again_page(_NO_TOKEN), "html", policy=AGAIN_POLICY)
            elif not hmac.compare_digest(given.encode(), page.token.encode()):
                self._refuse(HTTPStatus.FORBIDDEN, _NO_TOKEN)
            else:
                return True
            return False

        def _tell(self, find: Callable[[], Told]) -> None:
            try:
                text = json.dumps(find())
            except DacemlError as error:
                self._refuse(HTTPStatus.CONFLICT, str(error))
            except Exception as error:
                log.exception("the page failed")
                self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
            else:
                self._answer(HTTPStatus.OK, text, "json")

        def _refuse(self, status: HTTPStatus, why: str) -> None:
            self.close_connection = True  # what was sent besides may not have been read
            self._answer(status, json.dumps({"error": why}), "json")

        def _answer(self, status: HTTPStatus, text: str, kind: str, *, policy: str = _POLICY) -> None:
            data = text.encode()
            self.send_response(status)
            for name, value in {
                "Content-Type": f"{_TYPES[kind]}; charset=utf-8",
                "Content-Length": str(len(data)),
                "Content-Security-Policy": policy,
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
                "Cross-Origin-Resource-Policy": "same-origin",
                "Cross-Origin-Opener-Policy": "same-origin",
                "Cache-Control": "no-store",
            }.items():
                self.send_header(name, value)
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            log.debug(format, *args)  # the first line of a request holds the token

    return Handler
