"""What both clients tell httpx and websockets, and how they read what these say."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

import httpx
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from ._call import Answer, Call
from ._changes import EVENTS, LINES, SILENCE_MAX
from ._live import closed
from .errors import ConnectionFailed, TidewireError, UnexpectedAnswer, refusal

try:
    _VERSION = version("tidewire")
except PackageNotFoundError:  # pragma: no cover - run from the sources, without an installation
    _VERSION = "0"
USER_AGENT = f"tidewire-python/{_VERSION}"
MESSAGE_MAX = 8 * 1024 * 1024
CONNECT_MAX = 10.0
T = TypeVar("T")


def urls_of(server: str | Sequence[str]) -> list[str]:
    """Returns the URLs of the servers of a client, as a list."""
    if isinstance(server, str):
        return [server]
    if not isinstance(server, Sequence) or not all(isinstance(url, str) for url in server):
        raise TypeError(f"server: a URL or a list of URLs is needed, not {server!r}")
    return list(server)


def tls_of(urls: Sequence[str], given: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Returns what certificates are checked by, the same for HTTP and WebSockets; None where nothing is encrypted."""
    if given is not None or not any(url.startswith("https://") for url in urls):
        return given
    return httpx.create_ssl_context()


def checked_token(token: str) -> str:
    """Returns a token; raises `ValueError`, without its text, if it cannot be in a header, as one read from a file with its line break."""
    if not token or token != token.strip() or not all(" " <= character <= "~" for character in token):
        raise ValueError("the token is empty, has a space or a line break at its end, or a character that a header cannot have")
    return token


def headers_of(token: str | None) -> dict[str, str]:
    """Returns the headers of every request."""
    headers = {"user-agent": USER_AGENT}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    return headers


def request_of(http: httpx.Client | httpx.AsyncClient, call: Call[T], url: str, token: str | None) -> httpx.Request:
    """Returns a call as a request."""
    headers = headers_of(token)
    if call.body is not None:
        headers["content-type"] = "application/json"
    if call.after_sequence is not None:
        headers["tidewire-after"] = str(call.after_sequence)
    params = dict(call.query) or None
    return http.build_request(call.method, url + call.path, params=params, headers=headers, content=call.body)


def stream_request(http: httpx.Client | httpx.AsyncClient, url: str, query: dict[str, str], token: str | None) -> httpx.Request:
    """Returns the request for a stream of changes."""
    timeout = httpx.Timeout(CONNECT_MAX, read=SILENCE_MAX)
    headers = {**headers_of(token), **EVENTS}
    return http.build_request("GET", f"{url}/v1/changes", params=query, headers=headers, timeout=timeout)


def lines_request(http: httpx.Client | httpx.AsyncClient, call: Call[T], url: str, token: str | None) -> httpx.Request:
    """Returns the request for changes as lines, which come as the server reads them."""
    timeout = httpx.Timeout(CONNECT_MAX, read=SILENCE_MAX)
    headers = {**headers_of(token), **LINES}
    return http.build_request(call.method, url + call.path, params=dict(call.query), headers=headers, timeout=timeout)


def socket_url(url: str, path: str, query: dict[str, str]) -> str:
    """Returns the address of a live connection."""
    return str(httpx.URL("ws" + url.removeprefix("http") + path, params=query or None))


def tls_for(url: str, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Returns what a live connection is encrypted by: one without encryption must not be given any."""
    return tls if url.startswith("https://") else None


def no_answer(url: str, cause: httpx.TransportError) -> ConnectionFailed:
    """Returns what a failure of httpx means; raises what is wrong with the request itself, which no other try mends."""
    if isinstance(cause, (httpx.LocalProtocolError, httpx.UnsupportedProtocol)):
        # Without its text, which may have the token.
        raise TidewireError(f"{url}: the request cannot be sent: {type(cause).__name__}") from None
    was_sent = not isinstance(cause, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError))
    return ConnectionFailed(f"{url}: {cause or type(cause).__name__}", sent=was_sent)


def not_decoded(url: str, cause: httpx.DecodingError) -> UnexpectedAnswer:
    """Returns what an answer means whose compression is wrong. Its status is lost with it."""
    return UnexpectedAnswer(f"{url}: an answer of another form: {cause}")


def answer_of(response: httpx.Response) -> Answer:
    """Returns a response that is complete."""
    return Answer(response.status_code, response.headers, response.content)


def lost_socket(url: str, cause: Exception) -> tuple[TidewireError, int | None]:
    """Returns what the end of a live connection means, and its close code."""
    if isinstance(cause, InvalidStatus):
        response = cause.response
        headers = {name.lower(): value for name, value in response.headers.raw_items()}
        return refusal(response.status_code, headers, bytes(response.body or b"")), None
    if isinstance(cause, ConnectionClosed):
        code = cause.rcvd.code if cause.rcvd is not None else None
        return closed(code, cause.rcvd.reason if cause.rcvd is not None else ""), code
    if isinstance(cause, TimeoutError):
        return ConnectionFailed(f"{url}: nothing was received in time", sent=True), None
    return ConnectionFailed(f"{url}: {cause or type(cause).__name__}", sent=False), None


SOCKET_ERRORS = (WebSocketException, OSError, TimeoutError, EOFError)


def ended(url: str) -> ConnectionFailed:
    """Returns what the end of a stream means that has no end."""
    return ConnectionFailed(f"{url}: the stream ended", sent=True)


def returned(make: Callable[..., object], wrapper: str, instead: str = "") -> str:
    """Returns what a method answers, for `help`, from the annotation of what makes its request."""
    inner = str(make.__annotations__["return"]).removeprefix(f"{wrapper}[").removesuffix("]")
    inner = re.sub(r"\b[md]\.", "", inner)
    return f"{instead}[{inner}]" if instead else inner
