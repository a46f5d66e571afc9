"""Refusals of the real server, as typed errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import Connect
from server import Server

import tidewire as t
from tidewire import Tidewire

Call = Callable[[Tidewire], object]

TABLE: list[tuple[Call, type[t.TidewireError], int, str, str | None]] = [
    (lambda c: c.get_post("77"), t.NotFound, 404, "unknown_post", None),
    (lambda c: c.get_post("x"), t.BadRequest, 400, "invalid_path", "id"),
    (lambda c: c.get_user("nobody-knows"), t.NotFound, 404, "unknown_source", None),
    (lambda c: c.delete_list("ann", "a/b"), t.BadRequest, 400, "invalid_path", "name"),
    (lambda c: c.cluster(), t.NotFound, 404, "no_cluster", None),
    (lambda c: c.feed("ann", limit=101), t.BadRequest, 400, "invalid_parameter", "limit"),
    (lambda c: c.find_sources(limit=51), t.BadRequest, 400, "invalid_parameter", "limit"),
    (lambda c: c.stats_history(since="x"), t.BadRequest, 400, "invalid_parameter", "since"),
    (lambda c: c.fanout("77"), t.NotFound, 404, "unknown_post", None),
    (lambda c: c.feed("ann", before="?"), t.BadRequest, 400, "invalid_parameter", "before"),
    (lambda c: c.follow("ann", "ann"), t.Unprocessable, 422, "self_follow", None),
    (lambda c: c.follow("blocked", "blocker"), t.Forbidden, 403, "blocked", None),
    (lambda c: c.publish("bob", 2, id="4711"), t.Conflict, 409, "post_id_taken", None),
    (lambda c: c.publish("bob", "x" * 70_000), t.BadRequest, 413, "body_too_large", "body"),
    (lambda c: c.publish("bob", "x" * 90_000), t.BadRequest, 413, "body_too_large", None),
    (lambda c: c.edit_post("4711"), t.BadRequest, 400, "missing_field", "body"),
    (lambda c: next(c.changes(after=10**9)), t.SequenceInFuture, 400, "sequence_in_future", "after"),
    (lambda c: next(c.changes(after=0, types=["unheard"])), t.BadRequest, 400, "invalid_parameter", "types"),  # type: ignore[list-item]
    (lambda c: next(c.live("a/b")), t.BadRequest, 400, "invalid_path", "user"),
    (lambda c: next(c.watch("a/b")), t.BadRequest, 400, "invalid_path", "user"),
]


@pytest.mark.parametrize(("call", "kind", "status", "code", "field"), TABLE, ids=[f"{code}-{n}" for n, (*_, code, _) in enumerate(TABLE)])
def test_a_refusal_has_its_type_status_code_and_field(
    client: Tidewire, call: Call, kind: type[t.TidewireError], status: int, code: str, field: str | None
) -> None:
    client.publish("bob", 1, id="4711")
    client.block("blocker", "blocked")
    with pytest.raises(t.TidewireError) as raised:
        call(client)
    error = raised.value
    assert (type(error), error.status, error.code, error.field) == (kind, status, code, field)
    assert error.message and str(error) == error.message and error.problem["code"] == code
    assert error.request_id and error.message.endswith(f" (request {error.request_id})")
    assert not error.is_temporary and not error.outcome_unknown


def test_follows_are_refused_as_a_whole_and_each_is_named(client: Tidewire) -> None:
    with pytest.raises(t.Unprocessable) as raised:
        client.follow_many([t.NewFollow("ann", "bob"), t.NewFollow("ann", "ann")])
    assert [(each["index"], each["code"]) for each in raised.value.errors] == [(1, "self_follow")]


def test_a_client_that_asks_too_much_is_told_when_to_come_back(connect: Connect) -> None:
    with Server("--rate-limit", "1") as server:
        client = connect(server.url, retries=0)
        with pytest.raises(t.RateLimited) as raised:
            for _ in range(10):
                client.feed("ann")
        assert raised.value.code == "rate_limited" and (raised.value.retry_after or 0) >= 1


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_what_cannot_be_part_of_a_path_reaches_no_other_one(client: Tidewire, part: str) -> None:
    client.follow("kept", "bob")
    calls: list[Call] = [
        lambda c: c.unfollow("kept", part),
        lambda c: c.unmute("kept", part),
        lambda c: c.delete_list("kept", part),
        lambda c: c.remove_member("kept", part, part),
        lambda c: c.get_user(part),
        lambda c: c.live(part),
        lambda c: c.watch(part),
    ]
    for call in calls:
        with pytest.raises(ValueError):
            call(client)
    assert [each.id for each in client.following("kept").items] == ["bob"], "the user is erased"


EDGE = "NewFollow, or a dict with follower, source and optionally hidden, backfill is needed"
SHAPES: list[tuple[Callable[[Any], object], str]] = [
    (
        lambda c: c.publish_many({"posts": []}),
        "posts: an iterable, such as a list, is needed, each of it NewPost, or a dict with author, body",
    ),
    (lambda c: c.publish_many(t.NewPost("bob", 1)), "posts: an iterable, such as a list, is needed"),
    (lambda c: c.publish_many([("bob", 1)]), r"posts\[0\]: NewPost, or a dict with author, body and optionally id, .*, not tuple"),
    (lambda c: c.publish_many([t.NewPost("bob", 1), {"author": "bob"}]), r"posts\[1\] lacks body: NewPost, or a dict with"),
    (lambda c: c.publish_many([{"author": "bob", "body": 1, "published_at": "2026-11-20T10:00:00Z"}]), "a datetime .* is needed"),
    (lambda c: c.follow_many([{"user": "ann", "source": "bob"}]), rf"follows\[0\] lacks follower and has 'user': {EDGE}"),
    (lambda c: c.follow_many([("ann", "bob")]), rf"follows\[0\]: {EDGE}, not tuple"),
    (
        lambda c: c.follow_many(unfollows=[("ann", "bob")]),
        r"unfollows\[0\]: Unfollow, or a dict with follower, source is needed, not tuple",
    ),
    (lambda c: c.get_posts("77"), "ids: an iterable, such as a list, is needed, each of it str; not str"),
    (lambda c: c.get_posts([77]), r"ids\[0\]: str is needed, not int"),
    (lambda c: c.feeds("ann"), "users: an iterable"),
]


@pytest.mark.parametrize(("call", "said"), SHAPES)
def test_another_shape_than_that_of_a_batch_is_a_type_error_that_names_the_right_one(
    client: Tidewire, call: Callable[[Any], object], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        call(client)


WRONG_TEXTS: list[tuple[Callable[[Any], object], str]] = [
    (lambda c: c.get_post(77), "an id or a name is a str, not int"),
    (lambda c: c.feed(None), "an id or a name is a str, not NoneType"),
    (lambda c: c.publish("bob", 1, tags="rust"), "tags: an iterable, such as a list, is needed, each of it str; not str"),
    (lambda c: c.publish_many([{"author": "bob", "body": 1, "tags": "rust"}]), "tags: an iterable"),
    (lambda _: Tidewire(None), "server: a URL or a list of URLs is needed, not None"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "said"), WRONG_TEXTS)
def test_what_is_not_a_text_is_a_type_error(client: Tidewire, call: Callable[[Any], object], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call(client)


@pytest.mark.parametrize(
    ("server", "example"),
    [("localhost:9000", "localhost:9000"), (":9000", "localhost:9000"), ("ftp://a.example", "localhost:8080")],
)
def test_a_server_without_a_scheme_is_shown_with_one(server: str, example: str) -> None:
    with pytest.raises(ValueError, match=f"write it as http://{example}$"):
        Tidewire(server)


def test_times_without_a_zone_and_numbers_that_json_lacks_are_not_sent(client: Tidewire) -> None:
    from datetime import datetime

    with pytest.raises(ValueError):
        client.publish("bob", 1, published_at=datetime(2026, 11, 20))
    with pytest.raises(ValueError):
        client.publish("bob", float("nan"))
