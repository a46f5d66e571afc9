"""A server that answers as a test says: for what the real one does rarely, or never when asked."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

POST = {"id": "1", "author": "bob", "published_at": "2026-11-20T10:00:00Z", "body": 1, "kind": "post", "hidden": False}


@dataclass(frozen=True)
class Said:
    """One answer; status 0: none, the connection is closed."""

    status: int
    body: Any = None
    retry_after: str | None = None
    length: int | None = None
    raw: str | None = None
    encoding: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def problem(status: int, code: str, retry_after: str | None = None, **more: Any) -> Said:
    """Returns a refusal."""
    return Said(status, {"status": status, "code": code, "detail": "as the test says", **more}, retry_after)


class Scripted:
    """Answers the requests in turn, and records them; the last answer is for all others."""

    def __init__(self, *script: Said) -> None:
        self.asked: list[tuple[str, str, Any, str | None]] = []
        rest = list(script)
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                asked.append((self.command, self.path, body, self.headers.get("Authorization")))
                said = rest.pop(0) if len(rest) > 1 else rest[0]
                if said.status == 0:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                text = json.dumps(said.body).encode() if said.body is not None else b""
                if said.raw is not None:
                    text = said.raw.encode()
                self.send_response(said.status)
                self.send_header("Content-Length", str(len(text) if said.length is None else said.length))
                if said.encoding is not None:
                    self.send_header("Content-Encoding", said.encoding)
                if said.retry_after is not None:
                    self.send_header("Retry-After", said.retry_after)
                for name, value in said.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)
                self.close_connection = said.length is not None

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def bodies(self) -> Sequence[Any]:
        """The bodies of the requests so far."""
        return [body for _, _, body, _ in self.asked]


@contextmanager
def node(after_sequence: int) -> Iterator[tuple[str, list[str | None]]]:
    """Serves, as a node of a cluster that begins live connections at this sequence, feeds of one post.

    Yields the URL, and the `Tidewire-After` of each page that was asked for.
    """
    asked: list[str | None] = []
    page = json.dumps({"items": [{"post": POST, "cursor": "1", "via": ["bob"], "reposts": []}], "next": None, "newest": "1", "partial": []})

    def answered(connection: ServerConnection, request: Request) -> Response | None:
        if "Upgrade" in request.headers:
            return None
        asked.append(request.headers.get("Tidewire-After"))
        return Response(200, "OK", Headers({"Content-Type": "application/json", "Content-Length": str(len(page))}), page.encode())

    def live(connection: ServerConnection) -> None:
        hello = {"type": "hello", "seq": 1, "epoch": "e", "recovered": False, "after_sequence": after_sequence}
        connection.send(json.dumps(hello))
        connection.recv()

    with serve(live, "127.0.0.1", 0, process_request=answered) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}", asked
