"""The real server, on a port and a directory of its own; a proxy that cuts connections; and tokens."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import httpx

LONGEST = 60.0
SECRET = b"a secret of at least thirty-two bytes"
KEY = "a server key of the tests, long enough to be one"
ACCESS = f"""
[[server-key]]
name = "backend"
sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"

[[token-key]]
name = "login"
algorithm = "HS256"
secret = "{base64.b64encode(SECRET).decode()}"
"""


def program() -> Path:
    """Returns the server program: `TIDEWIRE_PROGRAM`, or the one of a debug build."""
    built = Path(__file__).resolve().parents[3] / "target/debug/tidewire"
    return Path(os.environ.get("TIDEWIRE_PROGRAM", built))


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Returns once a condition holds."""
    end = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < end, f"{what} did not come in {LONGEST} s"
        time.sleep(0.02)


def token(user: str, seconds: float = 3600) -> str:
    """Returns a user's token."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    now = time.time()
    signed = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part({'sub': user, 'iat': int(now), 'exp': int(now + seconds)})}"
    signature = hmac.new(SECRET, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


# Asks Linux to end the process with the thread that started it (PR_SET_PDEATHSIG): no server is left behind by tests that are killed.
_ENDING_WITH_THE_TESTS = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Server:
    """A server that can be killed and started again on what is left."""

    def __init__(self, *words: str, access: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tidewire-python-"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._words = list(words)
        if access:
            file = self.folder / "access.toml"
            file.write_text(ACCESS)
            file.chmod(0o600)
            self._words += ["--access", str(file)]
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        self.run()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self) -> None:
        """Starts the program."""
        # Settings of whoever runs the tests are not the server's.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEWIRE_")}
        words = [str(program()), "serve", "--listen", f"127.0.0.1:{self.port}", "--data-dir", str(self.folder / "data")]
        # Erasures wait for no consumers, of whom the tests have many.
        words += ["--erasure-grace", "0s", *self._words]
        with (self.folder / "log").open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-S", "-c", _ENDING_WITH_THE_TESTS, *words], stdout=log, stderr=log, env=environment
            )
        try:
            wait_for(self._is_ready, "a server that is ready")
        except BaseException:
            self.kill()
            raise

    def _is_ready(self) -> bool:
        assert self._child is not None
        assert self._child.poll() is None, (self.folder / "log").read_text()
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """Ends it as a crash does."""
        if self._child is not None:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()
            self._child = None


class Proxy:
    """Passes connections on to a server, and cuts them when told."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            server = socket.create_connection(("127.0.0.1", self._to))
            self._pairs.append((client, server))
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()

    def cut(self) -> None:
        """Ends all connections, without any word of the protocol."""
        for pair in self._pairs:
            for each in pair:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def close(self) -> None:
        """Ends all, and listens no more."""
        self._listener.close()
        self.cut()
