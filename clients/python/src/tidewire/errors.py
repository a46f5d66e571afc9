"""The errors of the clients. All are a `TidewireError`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


class TidewireError(Exception):
    """A request that failed, or whose outcome is unknown."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        field: str | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        message = f"{message} (request {request_id})" if request_id else message
        super().__init__(message)
        self.message = message
        """What failed and why, for people."""
        self.status = status
        """The HTTP status; None without a response."""
        self.code = code
        """The stable code of the refusal, such as `post_id_taken`, on which programs branch."""
        self.field = field
        """The invalid field, path part or query parameter."""
        self.retry_after = retry_after
        """Seconds after which a retry may succeed."""
        self.request_id = request_id
        """The id of the request in the server's log: `X-Request-Id` of the response, if it had one."""
        self.problem: Mapping[str, Any] = problem or {}
        """The whole refusal, as the server sent it."""

    @property
    def errors(self) -> Sequence[Mapping[str, Any]]:
        """Of many follows: each edge that cannot be added, by its `index` in the request, with `code` and `detail`."""
        found: Sequence[Mapping[str, Any]] = self.problem.get("errors", ())
        return found

    @property
    def outcome_unknown(self) -> bool:
        """True if the request may have been executed nevertheless."""
        # Without Tidewire's code, a proxy has responded, which does not know the outcome at its server.
        return self.code is None and self.status is not None and (self.status == 408 or self.status >= 500)

    @property
    def is_temporary(self) -> bool:
        """True if the same request may succeed later."""
        return self.status in (408, 429, 502, 503, 504)


class ConnectionFailed(TidewireError):
    """No server responded, or the connection broke before the response was complete."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent
        """True if the request may have reached a server."""

    @property
    def outcome_unknown(self) -> bool:
        return self.sent

    @property
    def is_temporary(self) -> bool:
        return True


class UnexpectedAnswer(TidewireError):
    """A response that is not from Tidewire: of a proxy, or of a much newer server."""

    @property
    def outcome_unknown(self) -> bool:
        return self.status is None or 200 <= self.status < 300 or super().outcome_unknown


class PartialPage(TidewireError):
    """A page of an `iter_…` lacks entries of these `sources`, which could not be read in time, even after retries."""

    def __init__(self, sources: Sequence[str]) -> None:
        super().__init__(f"the page lacks posts that could not be read in time, of {', '.join(sources)}", status=200, code="partial")
        self.sources = sources

    @property
    def is_temporary(self) -> bool:
        return True


class BadRequest(TidewireError):
    """400, 405, 413, 415 and similar: the request is invalid; `field` names the invalid part."""


class SequenceInFuture(BadRequest):
    """The journal ends before the requested sequence: it is another journal, or was restored or cut."""

    @property
    def newest(self) -> int:
        """The last existing sequence: the largest possible `after`."""
        return int(self.problem["newest"])


class Unauthorized(TidewireError):
    """401: the key or token is missing, wrong, expired or revoked."""


class Forbidden(TidewireError):
    """403: the client is not allowed to do this; with the code `blocked`, one of the users has blocked the other."""


class NotFound(TidewireError):
    """404: the post, user or list does not exist, or there is no cluster."""


class Conflict(TidewireError):
    """409: the request conflicts with the current state, for example an id of another post."""


class Gone(TidewireError):
    """410: the journal no longer has the next event. Events are missing: rebuild all data derived from them."""

    @property
    def oldest(self) -> int:
        """The smallest possible sequence."""
        return int(self.problem["oldest"])


class Unprocessable(TidewireError):
    """422: the request is valid, but cannot be executed, such as following oneself."""


class RateLimited(TidewireError):
    """429: the client exceeds a limit."""


class ServerFailed(TidewireError):
    """500: the server failed; its log has the cause."""


class Unavailable(TidewireError):
    """503: the server is overloaded, starting or stopping. Nothing was done.

    Without a `code`, it is the response of a proxy (also 502 and 504), and `outcome_unknown` is true.
    """


class OutcomeUnknown(Unavailable):
    """503 `outcome_unknown`: the write may have been executed or not."""

    @property
    def outcome_unknown(self) -> bool:
        return True


class StorageFull(TidewireError):
    """507: the disk, or the memory for posts or follows, is full."""


_BY_CODE: dict[str, type[TidewireError]] = {
    "gone": Gone,
    "outcome_unknown": OutcomeUnknown,
    "sequence_in_future": SequenceInFuture,
}
_BY_STATUS: dict[int, type[TidewireError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Unprocessable,
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
    507: StorageFull,
}


def refusal(status: int, headers: Mapping[str, str], content: bytes) -> TidewireError:
    """Returns the error for a response other than 2xx."""
    try:
        problem = json.loads(content)
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or not isinstance(problem.get("code"), str):
        problem = {}
    return refusal_of(problem, headers.get("x-request-id"), status, _seconds(headers.get("retry-after")))


def refusal_of(
    problem: Mapping[str, Any], request_id: str | None, status: int | None = None, retry_after: float | None = None
) -> TidewireError:
    """Returns the error for a problem, which may be one of many in a response."""
    status = status if status is not None else problem.get("status")
    code, detail = problem.get("code"), problem.get("detail")
    if status is None or not 400 <= status < 600:
        return UnexpectedAnswer(f"unexpected response with status {status}", status=status, request_id=request_id, problem=problem)
    usual = BadRequest if status < 500 else ServerFailed
    kind = _BY_CODE.get(code or "") or _BY_STATUS.get(status, usual)
    if kind is Gone and "oldest" not in problem:
        kind = BadRequest
    return kind(
        f"{status} {code}: {detail}" if code else f"status {status}",
        status=status,
        code=code,
        field=problem.get("field"),
        retry_after=retry_after if retry_after is not None else problem.get("retry_after"),
        request_id=request_id,
        problem=problem,
    )


def _seconds(text: str | None) -> float | None:
    # The header may also be a date, which a proxy may send: then the usual pause applies.
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
