"""What can go wrong. All are a `TidewireError`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


class TidewireError(Exception):
    """A request that was not done, or whose outcome is not known."""

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
        """What is wrong, for people."""
        self.status = status
        """The HTTP status; None if there was no answer."""
        self.code = code
        """The stable name of the refusal, such as `post_id_taken`: what programs branch on."""
        self.field = field
        """The field, path part or query parameter at fault."""
        self.retry_after = retry_after
        """Seconds after which the same request may succeed."""
        self.request_id = request_id
        """The id by which the server's log has the request: `X-Request-Id` of the answer, if it had one."""
        self.problem: Mapping[str, Any] = problem or {}
        """The whole refusal, as the server sent it."""

    @property
    def errors(self) -> Sequence[Mapping[str, Any]]:
        """Of many follows: each that cannot be made, by its `index` in the request, with `code` and `detail`."""
        found: Sequence[Mapping[str, Any]] = self.problem.get("errors", ())
        return found

    @property
    def outcome_unknown(self) -> bool:
        """Whether the request may have been done all the same."""
        # Without Tidewire's code, a proxy has answered: it does not know what the server behind it has done.
        return self.code is None and self.status is not None and (self.status == 408 or self.status >= 500)

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (408, 429, 502, 503, 504)


class ConnectionFailed(TidewireError):
    """No server answered, or the connection broke off before the answer was complete."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether the request may have reached a server."""

    @property
    def outcome_unknown(self) -> bool:
        return self.sent

    @property
    def is_temporary(self) -> bool:
        return True


class UnexpectedAnswer(TidewireError):
    """An answer that is not Tidewire's: of a proxy, or of a much newer server."""

    @property
    def outcome_unknown(self) -> bool:
        return self.status is None or 200 <= self.status < 300 or super().outcome_unknown


class PartialPage(TidewireError):
    """A page of an `iter_…` lacks what could not be read in time, also when it was read again. `sources` may have more there."""

    def __init__(self, sources: Sequence[str]) -> None:
        super().__init__(f"the page lacks posts that could not be read in time, of {', '.join(sources)}", status=200, code="partial")
        self.sources = sources

    @property
    def is_temporary(self) -> bool:
        return True


class BadRequest(TidewireError):
    """400, 405, 413, 415 and the like: the request is put wrongly; `field` names the part at fault."""


class SequenceInFuture(BadRequest):
    """The journal ends before the sequence that was asked for: it is another journal, or was restored or cut."""

    @property
    def newest(self) -> int:
        """The last sequence that exists: the greatest `after` that is possible."""
        return int(self.problem["newest"])


class Unauthorized(TidewireError):
    """401: the key or token is missing, wrong, expired or revoked."""


class Forbidden(TidewireError):
    """403: who asks may not do this; with the code `blocked`, one of the users has blocked the other."""


class NotFound(TidewireError):
    """404: there is no such post, user or list, or no cluster."""


class Conflict(TidewireError):
    """409: this contradicts what is there, such as an id that another post has."""


class Gone(TidewireError):
    """410: the journal does not have the next event any more. Events are missing: build anew what was made of them."""

    @property
    def oldest(self) -> int:
        """The first sequence that is possible."""
        return int(self.problem["oldest"])


class Unprocessable(TidewireError):
    """422: the request is well put, but cannot be done, such as following oneself."""


class RateLimited(TidewireError):
    """429: this client asks for too much."""


class ServerFailed(TidewireError):
    """500: the server failed inside; its log says how."""


class Unavailable(TidewireError):
    """503: the server is overloaded, starting or stopping. Nothing was done.

    Without a `code`, also 502 and 504, it is the answer of a proxy, and `outcome_unknown` is true.
    """


class OutcomeUnknown(Unavailable):
    """503 `outcome_unknown`: the write may be done or not."""

    @property
    def outcome_unknown(self) -> bool:
        return True


class StorageFull(TidewireError):
    """507: the disk, or the memory that posts or follows may take, is full."""


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
    """Returns the error that an answer other than 2xx stands for."""
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
    """Returns the error that a problem stands for, which may be one of many in an answer."""
    status = status if status is not None else problem.get("status")
    code, detail = problem.get("code"), problem.get("detail")
    if status is None or not 400 <= status < 600:
        return UnexpectedAnswer(f"an answer with status {status}", status=status, request_id=request_id, problem=problem)
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
    # The other form of the header is a date, which a proxy may send: then the usual pause is taken.
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
