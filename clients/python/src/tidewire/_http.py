"""The use of httpx and websockets that both clients share: requests, and the meaning of responses and failures."""

from __future__ import annotations

import asyncio
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
    """Returns the context that checks certificates, the same for HTTP and WebSockets; None if nothing is encrypted."""
    if given is not None or not any(url.startswith("https://") for url in urls):
        return given
    return httpx.create_ssl_context()


def checked_token(token: str) -> str:
    """Returns a token. Raises `ValueError`, without its text, if a header cannot have it, such as one with a line break from its file."""
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
    """Returns the request for changes as lines, which arrive while the server reads them."""
    timeout = httpx.Timeout(CONNECT_MAX, read=SILENCE_MAX)
    headers = {**headers_of(token), **LINES}
    return http.build_request(call.method, url + call.path, params=dict(call.query), headers=headers, timeout=timeout)


def socket_url(url: str, path: str, query: dict[str, str]) -> str:
    """Returns the address of a live connection."""
    return str(httpx.URL("ws" + url.removeprefix("http") + path, params=query or None))


def tls_for(url: str, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Returns the context of a live connection. A connection without encryption must not get one."""
    return tls if url.startswith("https://") else None


def no_answer(url: str, cause: httpx.TransportError) -> ConnectionFailed:
    """Returns the error for a failure of httpx. Raises the error of an invalid request, because a retry would not help."""
    if isinstance(cause, (httpx.LocalProtocolError, httpx.UnsupportedProtocol)):
        # Without the text of the cause, which may contain the token.
        raise TidewireError(f"{url}: the request cannot be sent: {type(cause).__name__}") from None
    was_sent = not isinstance(cause, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError))
    return ConnectionFailed(f"{url}: {cause or type(cause).__name__}", sent=was_sent)


def not_decoded(url: str, cause: httpx.DecodingError) -> UnexpectedAnswer:
    """Returns the error for a response with invalid compression. Its status is lost."""
    return UnexpectedAnswer(f"{url}: invalid response: {cause}")


def answer_of(response: httpx.Response) -> Answer:
    """Converts a complete response."""
    return Answer(response.status_code, response.headers, response.content)


def lost_socket(url: str, cause: Exception) -> tuple[TidewireError, int | None]:
    """Returns the error for the end of a live connection, and its close code."""
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


# `asyncio.TimeoutError` is `TimeoutError` from Python 3.11 on.
SOCKET_ERRORS = (WebSocketException, OSError, TimeoutError, asyncio.TimeoutError, EOFError)


def ended(url: str) -> ConnectionFailed:
    """Returns the error for the end of an endless stream."""
    return ConnectionFailed(f"{url}: the stream ended", sent=True)


def returned(make: Callable[..., object], wrapper: str, instead: str = "") -> str:
    """Returns the return type of a method, for `help`, from the annotation of the function that makes its request."""
    inner = str(make.__annotations__["return"]).removeprefix(f"{wrapper}[").removesuffix("]")
    inner = re.sub(r"\b[md]\.", "", inner)
    return f"{instead}[{inner}]" if instead else inner
