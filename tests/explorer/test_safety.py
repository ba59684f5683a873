"""Nobody but the user's own browser and scripts gets an answer, and nobody can ask for too much."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress

import pytest

import graphsvx
from graphsvx.explorer.app import BusyError, WorkQueue
from graphsvx.explorer.questions import Limits
from graphsvx.explorer.server import start
from graphsvx.explorer.workspace import make_workspace

ABOUT = "/api/v1/workspace"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic {token}"},
        {"Cookie": "graphsvx-{port}=wrong"},
        {"Cookie": "graphsvx-{port}={token}"},
        {"Cookie": "=;; a=[; $x"},
        {"Authorization": "Bearer \xe4"},
    ],
)
def test_without_the_right_token_nothing_is_answered(client, headers):
    names = {"token": client.server.token, "port": client.server.port}
    given = {name: value.format(**names) for name, value in headers.items()}
    status, _, content = client.request(ABOUT, headers=given, token=False)
    assert status == 401
    assert b"random" not in content
    status, _, content = client.request("/", headers=given, token=False)
    assert status == 401
    assert b"graphsvx serve" in content


def test_the_token_of_the_address_becomes_a_strict_cookie(client):
    status, headers, _ = client.request(
        f"/?view=why&token={client.server.token}&node=3", token=False
    )
    assert status == 303
    assert headers["location"] == "/?view=why&node=3"
    cookie, *flags = headers["set-cookie"].split("; ")
    assert {"HttpOnly", "Path=/"} <= set(flags)
    assert "samesite=strict" in headers["set-cookie"].lower()
    assert client.server.token not in cookie
    for path in ("/", ABOUT):
        assert client.request(path, headers={"Cookie": cookie}, token=False)[0] == 200
    assert client.request("/?token=wrong", token=False)[0] == 401
    token = client.server.token
    assert client.request(f"/?token={token}&token=x", token=False)[0] == 401
    assert client.request(f"{ABOUT}?token={token}", token=False)[0] == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "[::1]", "a@b"]
)
def test_a_foreign_host_is_refused(client, host):
    status, _, content = client.request(
        ABOUT, headers={"Host": host.format(port=client.server.port)}
    )
    assert status in (400, 421)
    assert b"random" not in content


def test_two_hosts_or_none_are_refused(client):
    for lines in ((), (f"Host: 127.0.0.1:{client.server.port}", "Host: evil.example")):
        with socket.create_connection(("127.0.0.1", client.server.port), timeout=10) as connection:
            token = f"Authorization: Bearer {client.server.token}"
            text = "\r\n".join([f"GET {ABOUT} HTTP/1.1", *lines, token, "Connection: close"])
            connection.sendall(f"{text}\r\n\r\n".encode())
            answer = connection.recv(65536)
        assert answer.split()[1] in (b"400", b"421")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_requests_that_other_pages_send_are_refused(client, site):
    status, _, _ = client.request(ABOUT, headers={"Sec-Fetch-Site": site})
    assert status == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
def test_a_foreign_origin_is_refused_without_other_headers(client, origin):
    assert client.request(ABOUT, headers={"Origin": origin})[0] == 403
    assert client.request(ABOUT, headers={"Origin": client.server.address})[0] == 200


def test_connections_that_wait_or_are_too_many_are_closed(graph, models):
    limits = Limits(connections=3, header_seconds=0.5)
    with start(make_workspace(models["gcn"], graph), browser=False, limits=limits) as server:
        address = ("127.0.0.1", server.port)
        silent, slow, third = (socket.create_connection(address, timeout=20) for _ in range(3))
        slow.sendall(b"GET / HTTP/1.1\r\nHost: ")
        with socket.create_connection(address, timeout=20) as fourth:
            assert _ends(fourth)  # at once: there are three
        begun = time.monotonic()
        assert all(map(_ends, (silent, slow, third)))
        assert time.monotonic() - begun < 15
        for connection in (silent, slow, third):
            connection.close()
        question = http.client.HTTPConnection(*address, timeout=20)
        question.request("GET", ABOUT, headers={"Authorization": f"Bearer {server.token}"})
        assert question.getresponse().status == 200
        question.close()


def test_headers_are_bounded(client):
    with socket.create_connection(("127.0.0.1", client.server.port), timeout=20) as connection:
        with suppress(OSError):  # closed while we send
            connection.sendall(b"GET / HTTP/1.1\r\n" + (b"X: " + b"x" * 1000 + b"\r\n") * 200)
        with suppress(OSError):
            assert connection.recv(100).startswith(b"HTTP/1.1 400")


def _ends(connection: socket.socket) -> bool:
    """Whether the server closes a connection without an answer."""
    try:
        return connection.recv(1000) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_only_get_is_answered(client, method):
    assert client.request(ABOUT, method=method)[0] == 405


def test_bodies_are_refused_before_they_are_read(client):
    assert client.request(ABOUT, body=b"{}")[0] == 413
    assert (
        client.request(ABOUT, headers={"Transfer-Encoding": "chunked"}, body=b"0\r\n\r\n")[0] == 413
    )
    huge = {"Content-Length": str(10**12)}
    connection = http.client.HTTPConnection("127.0.0.1", client.server.port, timeout=10)
    connection.putrequest("GET", ABOUT)
    connection.putheader("Content-Length", huge["Content-Length"])
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_addresses_that_are_too_long_are_refused(client):
    status, _, content = client.request(f"{ABOUT}?q={'x' * 20_000}")
    assert status == 414
    assert b"at most 16384" in content


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("explain", "say which node"),
        ("explain?node=40", "from 0 to 39"),
        ("explain?node=-1", "from 0 to 39"),
        ("explain?node=1e3", "must be an integer"),
        ("explain?node=%F0%28", "cannot be read"),
        ("explain?node=3&node=4", "given twice"),
        ("explain?node=3&rm=1", "unknown parameter"),
        ("explain?node=3&model=__class__", "model must be one of gcn, gat"),
        ("explain?node=3&method=xgnn", "method must be one of"),
        ("explain?node=3&samples=1000000", "from 2 to 2000"),
        ("explain?node=3&samples=1", "from 2 to 2000"),
        ("explain?node=3&target=9", "output 9"),
        ("explain?node=3&target=1&rather_than=1", "another class"),
        ("explain?node=3&players=dogs", "players must be one of"),
        ("explain?node=3&method=saliency&players=nodes", "no setting"),
        ("explain?node=3&source=run", "needs a run"),
        ("predict?node=3&set=3:0:nan", "finite"),
        ("predict?node=3&set=3:0:1e999", "finite"),
        ("predict?node=3&set=3:9:1", "from 0 to 2"),
        ("predict?node=3&set=3", "NODE:FEATURE:VALUE"),
        ("predict?node=3&edges_off=3", "U-V"),
        ("predict?node=3&nodes_off=999999999999999999", "integer"),
        ("predict?node=3&nodes_off=" + ",".join(["1"] * 2001), "at most 2000 changes"),
        ("nodes?limit=100000", "from 1 to 200"),
        ("nodes?answer=maybe", "answer must be one of"),
        ("agreement?a=node%3D3", "say which node"),
        ("graphs/3.svg", "no graph 3"),
        ("run", "graphsvx run"),
        ("explain?" + "&".join(f"a{i}=1" for i in range(100)), "cannot be read"),
    ],
)
def test_malformed_requests_are_told_what_was_expected(client, query, words):
    name, _, rest = query.partition("?")
    status, _, content = client.request(f"/api/v1/{name}" + (f"?{rest}" if rest else ""))
    assert status == 400, content
    assert words in content.decode()


@pytest.mark.parametrize(
    "path",
    [
        "/static/../__init__.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/app.py",
        "/static/index.html", "/etc/passwd", "/frame/wrong/api/v1/workspace", "//",
        "/api/v2/explain",
    ],
)  # fmt: skip
def test_only_the_page_s_own_files_are_served(client, path):
    status, _, content = client.request(path)
    assert status == 404
    assert b"import" not in content


def test_every_answer_carries_the_policy(client):
    for path in ("/", ABOUT, "/static/graph.js", "/nothing", "/api/v1/explain?node=x"):
        _, headers, _ = client.request(path)
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_the_frame_of_a_notebook_needs_its_own_secret(client):
    source = client.server._repr_html_().partition('src="')[2].partition('"')[0]
    path = source.removeprefix(client.server.address)
    site = {"Sec-Fetch-Site": "cross-site"}
    status, headers, _ = client.request(path, headers=site, token=False)
    assert status == 200
    assert "frame-ancestors *" in headers["content-security-policy"]
    same = {"Sec-Fetch-Site": "same-origin"}
    assert client.request(path + "api/v1/workspace", headers=same, token=False)[0] == 200
    assert client.request(path + "api/v1/workspace", headers=site, token=False)[0] == 403
    assert client.server.token not in source


def test_the_server_listens_on_the_loopback_only(client):
    assert client.server.address == f"http://127.0.0.1:{client.server.port}"
    assert client.server._socket.getsockname()[0] == "127.0.0.1"


def test_a_taken_port_is_reported_and_a_closed_one_is_free(graph, models, client):
    with pytest.raises(ValueError, match="choose another port"):
        start(make_workspace(models["gcn"], graph), port=client.server.port, browser=False)
    server = start(make_workspace(models["gcn"], graph), browser=False)
    server.close()
    again = start(make_workspace(models["gcn"], graph), port=server.port, browser=False)
    again.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_cancelled_work_is_never_started_and_urgent_work_is_first():
    queue = WorkQueue("test", most=3)
    done, gate = [], threading.Event()
    queue.submit(gate.wait)
    while queue.waiting():
        time.sleep(0.001)
    later = queue.submit(lambda: done.append("later"), urgency=1)
    gone = queue.submit(lambda: done.append("gone"))
    soon = queue.submit(lambda: done.append("soon"))
    with pytest.raises(BusyError, match="3 questions are waiting"):
        queue.submit(lambda: None)
    gone.abandon()
    last = queue.submit(lambda: done.append("last"), urgency=2)  # a cancelled one makes room
    gate.set()
    last.result(10)
    assert done == ["soon", "later", "last"]
    assert soon.done()
    assert later.done()
    queue.close()
    with pytest.raises(BusyError, match="closing"):
        queue.submit(lambda: None)


def test_work_of_clients_that_leave_is_cancelled(graph, models):
    with start(make_workspace(models["gcn"], graph), browser=False) as server:
        queue, gate = server._site.explorer("").explaining, threading.Event()
        queue.submit(gate.wait)
        connections = []
        for node, name in ((1, "explain"), (2, "explain/stream"), (3, "explain/page")):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
            token = {"Authorization": f"Bearer {server.token}"}
            connection.request("GET", f"/api/v1/{name}?node={node}", headers=token)
            connections.append(connection)
        _until(lambda: queue.waiting() == 3)
        for connection in connections:
            connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()
        _until(lambda: queue.waiting() == 0)
        gate.set()


def test_running_work_that_nobody_wants_stops_at_its_next_model_call(graph, models):
    calls, queue = [], WorkQueue("test", most=3)

    def model(x, edge_index):
        calls.append(len(x))
        if len(calls) == 5:
            work.abandon()
        return models["gcn"](x, edge_index)

    ready = threading.Event()
    work = queue.submit(lambda: (ready.wait(10), graphsvx.explain(model, graph, node=4)))
    ready.set()
    with pytest.raises(CancelledError):
        work.result(60)
    assert len(calls) == 5
    assert graphsvx.explain(models["gcn"], graph, node=4).nodes  # nothing is left changed
    queue.close()


def _until(condition) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_200_parallel_clients_all_get_their_own_answer(client):
    expected = {
        node: client.answer("predict", node=node, nodes_off="5,6")["scores"] for node in range(40)
    }
    barrier = threading.Barrier(200)

    def ask(number: int) -> int:
        barrier.wait(30)
        right = 0
        for step in range(2):
            node = (number + 7 * step) % 40
            answer = client.answer("predict", node=node, nodes_off="5,6")
            right += answer["scores"] == expected[node]
        record = client.answer("explain", node=number % 40, samples=50)
        return right + (record["centres"] == [number % 40])

    with ThreadPoolExecutor(200) as pool:
        assert list(pool.map(ask, range(200))) == [3] * 200
