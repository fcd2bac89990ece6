"""The server answers whoever has its address, and nobody else."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from daceml.errors import MoveError, PageError
from daceml.gui.server import PageServer
from tests.support.golden import raises


class Counter:
    """Something to show: a number that is counted up."""

    title = "a <number>"

    def __init__(self) -> None:
        self.value = 0
        self.actions = {"count": self.count, "refuse": self.refuse, "fail": self.fail}

    def view(self, known: str = "") -> dict[str, Any]:
        return {"kind": "number", "value": self.value} | ({"known": known} if known else {})

    def count(self, told: dict[str, Any]) -> dict[str, Any]:
        if "by" not in told:
            raise PageError("nothing says by how much", fix='send {"by": 1}')
        self.value += told["by"]
        return self.view()

    def refuse(self, told: dict[str, Any]) -> dict[str, Any]:
        raise MoveError("not now", why="it is late", fix="come back")

    def fail(self, told: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("broken")


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer(Counter()) as found:
        yield found


def asked(
    server: PageServer, method: str, path: str, told: Any = None, **headers: str
) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection(*server._server.server_address, timeout=20)
    body = told if isinstance(told, str) or told is None else json.dumps(told)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body=body, headers=sent)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), {k.lower(): v for k, v in answer.getheaders()}
    connection.close()
    return found


def posted(server: PageServer, path: str, told: Any, **headers: str) -> tuple[int, str, dict[str, str]]:
    known = {"X_Daceml_Token": server.token, "Content_Type": "application/json"}
    return asked(server, "POST", path, told, **(known | headers))


def test_the_page_its_parts_and_its_view(server: PageServer):
    status, text, headers = asked(server, "GET", f"/?token={server.token}")
    assert status == 200 and "a &lt;number&gt;" in text and 'src="/page.js?' in text
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
    assert asked(server, "GET", f"/page.js?token={server.token}")[2]["content-type"].startswith("text/java")
    assert json.loads(asked(server, "GET", "/view.json", X_Daceml_Token=server.token)[1])["value"] == 0
    view = asked(server, "GET", "/view.json?graph=1%2C%20measured", X_Daceml_Token=server.token)[1]
    assert json.loads(view)["known"] == "1, measured"
    assert asked(server, "GET", f"/else?token={server.token}")[0] == 404
    assert asked(server, "GET", f"/../server.py?token={server.token}")[0] == 404


def test_it_listens_on_the_loopback_interface_only(server: PageServer):
    assert server._server.server_address[0] == "127.0.0.1"
    assert server.url.startswith(f"http://127.0.0.1:{server.port}/?token=") and len(server.token) >= 32


def test_actions_are_done_once_and_answered(server: PageServer):
    assert json.loads(posted(server, "/count", {"by": 2})[1]) == {"kind": "number", "value": 2}
    status, text, _ = posted(server, "/refuse", {})
    assert status == 409 and "[DML812] not now" in json.loads(text)["error"]
    assert "why:   it is late" in json.loads(text)["error"]


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Daceml_Token": "wrong"},
        {"X_Daceml_Token": ""},
        {"X_Daceml_Token": "wr\xf6ng"},
        {"Host": "attacker.example"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
    ],
)
def test_strangers_get_403(server: PageServer, headers: dict[str, str]):
    known = {"X_Daceml_Token": server.token, "Content_Type": "application/json"} | headers
    for method, path in (("GET", "/"), ("GET", "/view.json"), ("GET", "/page.js"), ("POST", "/count")):
        status, text, _ = asked(server, method, path, "{}", **known)
        assert status == 403 and server.token not in text, path
    assert server.shown.view()["value"] == 0


def test_a_tab_without_the_token_in_its_address_is_sent_back_and_told_nothing(server: PageServer):
    status, text, headers = asked(server, "GET", "/")
    assert status == 403 and server.token not in text and "a &lt;number&gt;" not in text
    script = re.findall("<script>(.*?)</script>", text)
    assert len(script) == 1 and "sessionStorage" in script[0]
    known = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{known}'" in headers["content-security-policy"]
    assert "sessionStorage" not in asked(server, "GET", "/", Host="attacker.example")[1]
    assert "sessionStorage" not in asked(server, "GET", "/?token=old")[1]  # it would ask again and again


def test_its_own_names_and_origin_are_right(server: PageServer):
    for host in server.hosts:
        assert asked(server, "GET", "/view.json", Host=host, X_Daceml_Token=server.token)[0] == 200
        assert posted(server, "/count", {"by": 0}, Host=host, Origin=f"http://{host}")[0] == 200


@pytest.mark.parametrize(
    ("told", "headers", "status"),
    [
        ("{", {}, 400),
        ("[]", {}, 400),
        ("{}", {}, 409),  # nothing says by how much
        ("{}", {"Transfer_Encoding": "chunked"}, 411),
        ("{}", {"Content_Type": "text/plain"}, 415),
        ("", {"Content_Length": str(2**21)}, 413),
        ("", {"Content_Length": "-1"}, 413),
        ("", {"Content_Length": "1" * 5000}, 413),
        ("[" * 100_000, {}, 400),
        ('{"a": ' * 100_000, {}, 400),
        ("1" * 10_000, {}, 400),
    ],
)
def test_what_is_no_request_is_refused(
    server: PageServer, told: str, headers: dict[str, str], status: int, capfd: pytest.CaptureFixture[str]
):
    assert posted(server, "/count", told, **headers)[0] == status
    assert capfd.readouterr().err == ""
    assert posted(server, "/else", {})[0] == 404
    assert json.loads(posted(server, "/count", {"by": 1})[1])["value"] == 1  # it goes on


def test_browsers_leave_the_port_80_out(server: PageServer):
    assert asked(server, "GET", "/view.json", Host="127.0.0.1", X_Daceml_Token=server.token)[0] == 403
    server.port = 80
    for host in ("127.0.0.1", "localhost", "127.0.0.1:80"):
        assert asked(server, "GET", "/view.json", Host=host, X_Daceml_Token=server.token)[0] == 200
    headers = {"Host": "localhost", "Origin": "http://localhost"}
    assert posted(server, "/count", {"by": 0}, **headers)[0] == 200
    assert posted(server, "/count", {"by": 0}, **(headers | {"Origin": "http://localhost:8000"}))[0] == 403


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_has_no_address_is_refused(server: PageServer, method: str, capsys: pytest.CaptureFixture[str]):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as browser:
        browser.sendall(f"{method} http://[ HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        answer = browser.makefile("rb").read().decode()
    assert answer.startswith("HTTP/1.1 400 ") and "address" in answer
    assert server.token not in answer and capsys.readouterr().err == ""


@pytest.mark.parametrize("answer", ["a view", "a refusal", "a page", "none"])
def test_a_browser_that_leaves_is_no_fault(
    server: PageServer, answer: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    begun, gone, handled = Event(), Event(), Event()

    def answered(*_: str) -> Any:
        begun.set()
        gone.wait(20)
        if answer == "a refusal":
            raise MoveError("not now", fix="come back")
        return "x" * 50_000_000 if answer == "a page" else {"text": "x" * 50_000_000}

    server.shown.view = answered
    monkeypatch.setattr("daceml.gui.server.live_page", answered)
    end = server._server.shutdown_request
    monkeypatch.setattr(server._server, "shutdown_request", lambda one: (end(one), handled.set()))
    browser = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    path = "/" if answer == "a page" else "/view.json"
    line = f"GET {path}?token={server.token} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    browser.sendall(line.encode() if answer == "none" else f"{line}\r\n".encode())
    assert answer == "none" or begun.wait(20)
    time.sleep(0.1)
    browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets it
    browser.close()
    gone.set()
    assert handled.wait(20)
    assert capfd.readouterr().err == ""


def test_a_fault_is_told_and_does_not_end_it(server: PageServer, caplog: pytest.LogCaptureFixture):
    status, text, _ = posted(server, "/fail", {})
    assert status == 500 and json.loads(text)["error"] == "RuntimeError: broken"
    assert posted(server, "/count", {"by": 1})[0] == 200


def test_more_connections_than_a_browser_opens_get_no_threads(server: PageServer):
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(50)]
    refused = [connection.recv(100) for connection in idle[-10:]]
    assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in refused)
    assert threading.active_count() - before <= 32
    for connection in idle:
        connection.close()
    while threading.active_count() > before:
        time.sleep(0.01)
    assert posted(server, "/count", {"by": 1})[0] == 200


def test_a_taken_port_is_refused(server: PageServer):
    with raises(PageError, f"port {server.port} ", "--port", exact=False):
        PageServer(Counter(), port=server.port)
