"""What is sent again, when and where; what is not; and tokens."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import Connect
from scripted import POST, Said, Scripted, problem
from server import KEY, Server, free_port, token

from tidewire import (
    AsyncTidewire,
    ConnectionFailed,
    Forbidden,
    NewPost,
    PartialPage,
    RefusedFeed,
    RefusedPost,
    Tidewire,
    TidewireError,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
)
from tidewire._exchange import Memory, Options, Reconnection, pause_before

GOOD = Said(200, POST)
OVERLOADED = problem(503, "overloaded", "1")
UNKNOWN = problem(503, "outcome_unknown", "1")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server with keys."""
    with Server(access=True) as running:
        yield running


def test_a_refused_call_is_sent_again_after_as_long_as_the_server_says(connect: Connect) -> None:
    with Scripted(OVERLOADED, problem(429, "rate_limited", "1"), GOOD) as server:
        began = time.monotonic()
        assert connect(server.url).get_post("1").author == "bob"
        assert len(server.asked) == 3
        assert time.monotonic() - began >= 2


def test_the_number_of_tries_has_a_limit(connect: Connect) -> None:
    with Scripted(problem(503, "overloaded")) as server:
        with pytest.raises(Unavailable) as raised:
            connect(server.url, retries=2).get_post("1")
        assert (raised.value.status, raised.value.code, len(server.asked)) == (503, "overloaded", 3)


def test_a_longer_pause_than_allowed_is_the_callers_to_make(connect: Connect) -> None:
    with Scripted(problem(429, "rate_limited", "31")) as server:
        with pytest.raises(TidewireError) as raised:
            connect(server.url).get_post("1")
        assert (raised.value.retry_after, len(server.asked)) == (31, 1)


def test_a_pause_is_never_shorter_than_what_the_server_says_and_never_the_same_for_all() -> None:
    asked = {pause_before(0, 2, 30) for _ in range(100)}
    assert len(asked) > 50 and min(asked) >= 2 and max(asked) <= 2.5
    own = [pause_before(failures, None, 30) for failures in range(2000)]
    assert max(own[:3]) <= 1 and max(own) <= 30 and max(own) > 20


def test_a_stream_pauses_no_longer_than_allowed() -> None:
    again = Reconnection(Options(retry_wait_max=2), Memory(["http://a.example"]), can_renew=False)
    again.connecting()
    again.greeted(0)
    assert 2 <= again.lost(Unavailable("", status=503, retry_after=86_400), 1).pause <= 2.5


SAFE: list[tuple[str, Callable[[Tidewire], object]]] = [
    ("a publish", lambda client: client.publish("bob", 1)),
    ("an edit", lambda client: client.edit_post("1", body=1)),
    ("a read", lambda client: client.get_post("1")),
]


REPEATED = [Said(0), Said(200, POST, length=10_000), UNKNOWN, Said(502)]


@pytest.mark.parametrize("lost", REPEATED, ids=["no answer", "half an answer", "unknown", "502"])
@pytest.mark.parametrize(("what", "call"), SAFE)
def test_what_may_be_done_twice_is_sent_again_when_the_outcome_is_unknown(
    connect: Connect, lost: Said, what: str, call: Callable[[Tidewire], object]
) -> None:
    with Scripted(lost, GOOD) as server:
        call(connect(server.url))
        assert len(server.asked) == 2
        assert server.asked[0] == server.asked[1], "not the same request, with the same id"


def test_a_batch_keeps_its_ids_when_it_is_sent_again(connect: Connect) -> None:
    with Scripted(Said(0), Said(200, {"posts": []})) as server:
        connect(server.url).publish_many([NewPost("bob", 1), NewPost("bob", 2)])
        first, second = server.bodies
        assert first == second and len({post["id"] for post in first["posts"]}) == 2


OF_A_PROXY = [Said(status, raw="<html>") for status in (408, 500, 502, 503, 504)]
LOST = [Said(0), UNKNOWN, *OF_A_PROXY, Said(200, raw="<html>")]


@pytest.mark.parametrize("lost", LOST, ids=["no answer", "unknown", "408", "500", "502", "503", "504", "another 200"])
def test_what_may_not_be_done_twice_is_reported(connect: Connect, lost: Said) -> None:
    calls: list[Callable[[Tidewire], object]] = [lambda client: client.take_snapshot(), lambda client: client.revoke_tokens("ann")]
    for call in calls:
        with Scripted(lost, GOOD) as server:
            with pytest.raises(TidewireError) as raised:
                call(connect(server.url))
            assert raised.value.outcome_unknown and len(server.asked) == 1
    with Scripted(lost, GOOD) as server:
        with pytest.raises(TidewireError) as raised:
            connect(server.url, token="of.a.user").publish("bob", 1)
        assert raised.value.outcome_unknown and len(server.asked) == 1, "a post without an id was sent twice"


@pytest.mark.parametrize("refused", [OVERLOADED, problem(408, "body_timeout")], ids=["503", "408"])
def test_what_tidewire_itself_refuses_was_not_done_and_is_sent_again(connect: Connect, refused: Said) -> None:
    with Scripted(refused, Said(200, {"user": "ann", "not_before": "2026-11-20T10:00:00Z"})) as server:
        connect(server.url).revoke_tokens("ann")
        assert len(server.asked) == 2


def test_a_post_by_a_users_token_has_no_id_and_is_sent_again_only_if_it_was_refused(connect: Connect) -> None:
    with Scripted(OVERLOADED, GOOD, Said(0)) as server:
        client = connect(server.url, token=lambda: token("bob"))
        client.publish("bob", 1)
        with pytest.raises(ConnectionFailed) as raised:
            client.publish("bob", 2)
        assert raised.value.outcome_unknown
        assert ["id" in body for body in server.bodies] == [False, False, False]


@pytest.mark.parametrize(
    ("given", "token_post_ids"), [(KEY, "server"), (None, "server"), (token("bob"), "user")], ids=["key", "none", "user"]
)
def test_a_post_has_an_id_of_the_client_where_it_may(connect: Connect, given: str | None, token_post_ids: str) -> None:
    with Scripted(Said(0), GOOD) as server:
        connect(server.url, token=given, token_post_ids=token_post_ids).publish("bob", 1)
        first, second = server.bodies
        assert first["id"] == second["id"]


def test_a_token_that_is_renewed_to_one_of_another_kind_does_not_change_a_post_that_was_sent(connect: Connect) -> None:
    tokens = iter([KEY, token("bob")])
    with Scripted(problem(401, "token_revoked"), GOOD) as server:
        connect(server.url, token=lambda: next(tokens)).publish("bob", 1)
        first, second = server.bodies
        assert first["id"] == second["id"]


def test_a_server_that_is_not_ready_is_no_error(connect: Connect) -> None:
    for said in (problem(503, "recovering", "1"), Said(200, "<html>"), Said(0)):
        with Scripted(said, Said(200, {"ready": True})) as server:
            client = connect(server.url)
            assert (client.is_ready(), client.is_ready(writes=True)) == (False, True)
            assert [path for _, path, *_ in server.asked] == ["/readyz", "/readyz?for=writes"]


def test_the_sequence_is_the_highest_of_all_answers(connect: Connect) -> None:
    headers = [{"Tidewire-Sequence": str(sequence)} for sequence in (7, 9, 8)]
    with Scripted(*[Said(200, POST, headers=each) for each in headers]) as server:
        client = connect(server.url)
        for expected in (7, 9, 9):
            client.publish("bob", 1)
            assert client.sequence == expected


def test_every_error_with_an_answer_has_its_request_id(connect: Connect) -> None:
    headers = {"X-Request-Id": "abc-1"}
    refused = {"problem": {"status": 422, "code": "not_a_user", "detail": "no"}, "user": "ann"}
    for said in (Said(404, headers=headers), Said(502, raw="<html>", headers=headers), Said(200, "<html>", headers=headers)):
        with Scripted(said) as server, pytest.raises(TidewireError) as raised:
            connect(server.url, retries=0).get_post("1")
        assert raised.value.request_id == "abc-1" and str(raised.value).endswith("(request abc-1)")
    with Scripted(Said(200, {"posts": [refused]}, headers=headers), Said(200, {"feeds": [refused]}, headers=headers)) as server:
        client = connect(server.url)
        [post], [feed] = client.publish_many([NewPost("bob", 1)]), client.feeds(["ann"])
        assert isinstance(post, RefusedPost) and isinstance(feed, RefusedFeed)
        assert post.error.request_id == feed.error.request_id == "abc-1"


def test_a_wrong_request_is_not_sent_again(connect: Connect) -> None:
    with Scripted(problem(409, "post_id_taken")) as server:
        with pytest.raises(TidewireError):
            connect(server.url).publish("bob", 1, id="1")
        assert len(server.asked) == 1


def test_an_iterator_reads_a_page_again_that_lacks_something_and_raises_if_it_always_does(connect: Connect) -> None:
    item = {"post": POST, "cursor": "1", "reposts": [], "via": []}
    whole = Said(200, {"items": [item, item], "next": None, "newest": None, "partial": []})
    part = Said(200, {"items": [item], "next": None, "newest": None, "partial": ["cas", "dan"]})
    with Scripted(part, part, part, whole) as server:
        assert len(list(connect(server.url).iter_feed("ann"))) == 2
        assert len(server.asked) == 4
    with Scripted(part) as server:
        client = connect(server.url)
        for walk in (client.iter_feed("ann"), client.iter_posts_of("bob"), client.iter_list_feed("ann", "near")):
            with pytest.raises(PartialPage) as raised:
                next(walk)
            assert raised.value.sources == ["cas", "dan"] and raised.value.is_temporary
        assert len(server.asked) == 12
        assert len(list(client.iter_feed("ann", take_partial=True))) == 1


@pytest.mark.parametrize("said", [Said(200, {"id": 1}), Said(200, "<html>"), Said(302, {}), Said(201, [])])
def test_an_answer_that_is_not_tidewires_is_an_error_of_its_own(connect: Connect, said: Said) -> None:
    with Scripted(said) as server, pytest.raises(UnexpectedAnswer):
        connect(server.url).get_post("1")


@pytest.mark.parametrize("call", [lambda client: client.get_post("1"), lambda client: client.take_snapshot()])
def test_an_answer_that_cannot_be_decompressed_is_not_tidewires(connect: Connect, call: Callable[[Tidewire], object]) -> None:
    with Scripted(Said(200, raw="not gzip", encoding="gzip")) as server:
        with pytest.raises(UnexpectedAnswer) as raised:
            call(connect(server.url))
        assert raised.value.outcome_unknown and len(server.asked) == 1


def test_nobody_who_listens_is_an_error_that_says_that_nothing_was_sent(connect: Connect) -> None:
    with pytest.raises(ConnectionFailed) as raised:
        connect(f"http://127.0.0.1:{free_port()}", retries=1).publish("bob", 1)
    assert not raised.value.outcome_unknown and raised.value.is_temporary and raised.value.status is None


def test_the_next_server_is_taken_when_one_does_not_answer_and_kept(connect: Connect) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with Scripted(GOOD, GOOD, problem(503, "leaving", "5"), GOOD) as first, Scripted(GOOD) as second:
        client = connect([nobody, first.url, second.url], retries=0)
        with pytest.raises(ConnectionFailed):
            client.get_post("1")
        for asked in ((1, 0), (2, 0)):
            client.get_post("1")
            assert (len(first.asked), len(second.asked)) == asked, "it stays with one that answers"
        with pytest.raises(Unavailable):
            client.get_post("1")
        client.get_post("1")
        assert (len(first.asked), len(second.asked)) == (3, 1), "it leaves one that says that it leaves"


def test_another_server_is_asked_without_a_pause(connect: Connect) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with Scripted(problem(503, "recovering", "30")) as starting, Scripted(GOOD) as ready:
        began = time.monotonic()
        connect([nobody, starting.url, ready.url]).get_post("1")
        assert (len(starting.asked), len(ready.asked)) == (1, 1)
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "said",
    [Said(502), Said(503, raw="<html>"), problem(503, "owner_unavailable", "20"), problem(503, "leaving", "3600")],
    ids=["a proxy's 502", "a proxy's 503", "no owner", "for an hour"],
)
def test_another_server_is_asked_at_once_if_one_cannot_reach_what_it_needs(connect: Connect, said: Said) -> None:
    with Scripted(said) as first, Scripted(GOOD) as second:
        began = time.monotonic()
        connect([first.url, second.url]).get_post("1")
        assert (len(first.asked), len(second.asked)) == (1, 1)
        assert time.monotonic() - began < 15


def test_a_server_that_is_named_twice_is_passed_over(connect: Connect) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with Scripted(GOOD) as server:
        connect([nobody, f"{nobody}/", nobody, server.url], retries=1).get_post("1")
        assert len(server.asked) == 1


def test_urls_are_checked_and_may_have_a_path() -> None:
    for wrong in ("localhost:8080", ["http://a.example", "feeds.example"], "ftp://example"):
        with pytest.raises(ValueError, match="does not begin with http:// or https://: write it as http://"):
            Tidewire(wrong)
    with pytest.raises(ValueError, match="at least one URL"):
        Tidewire([])
    with Scripted(GOOD) as server, Tidewire(f"{server.url}/feeds/") as client:
        client.get_post("1")
        assert server.asked[0][1] == "/feeds/v1/posts/1"


@pytest.mark.parametrize("wrong", ["a.secret\n", "a.secret ", "a\r\nsecret", "\u00e9.secret", ""])
def test_a_token_that_no_header_can_have_is_refused_without_its_text(connect: Connect, wrong: str) -> None:
    with Scripted(GOOD) as server:
        for ask in (lambda: connect(server.url, token=wrong), lambda: connect(server.url, token=lambda: wrong).get_post("1")):
            with pytest.raises(ValueError) as raised:
                ask()
            assert "secret" not in str(raised.value)
        assert server.asked == []


def test_a_request_that_cannot_be_sent_is_no_lost_connection(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    with Scripted(GOOD) as server:
        client = connect(server.url)
        monkeypatch.setattr("tidewire._http.USER_AGENT", "a.secret\n")
        for call in (lambda: client.get_post("1"), lambda: next(client.changes())):
            with pytest.raises(TidewireError) as raised:
                call()
            assert not isinstance(raised.value, ConnectionFailed) and not raised.value.is_temporary
            assert "secret" not in "".join(traceback.format_exception(raised.value))


def test_an_expired_token_is_renewed_once(connect: Connect, guarded: Server) -> None:
    tokens = [token("ann", -100), token("ann")]
    asked: list[str] = []

    def ask() -> str:
        asked.append(tokens[min(len(asked), 1)])
        return asked[-1]

    client = connect(guarded.url, token=ask)
    client.feed("ann")
    client.feed("ann")
    assert asked == tokens


def test_a_token_that_many_wait_for_is_asked_for_once() -> None:
    asked: list[str] = []

    def ask() -> str:
        time.sleep(0.2)
        asked.append("a.token")
        return asked[-1]

    async def ask_too() -> str:
        await asyncio.sleep(0.2)
        asked.append("a.token")
        return asked[-1]

    async def run(url: str) -> None:
        async with AsyncTidewire(url, token=ask_too) as client:
            await asyncio.gather(*[client.get_post("1") for _ in range(8)])

    with Scripted(GOOD) as server:
        with Tidewire(server.url, token=ask) as client, ThreadPoolExecutor(8) as pool:
            assert len(list(pool.map(client.get_post, ["1"] * 8))) == 8
        assert len(asked) == 1
        asyncio.run(run(server.url))
        assert len(asked) == 2


def test_tokens_that_are_never_good_are_asked_for_once_more_only(connect: Connect, guarded: Server) -> None:
    asked: list[str] = []

    def ask() -> str:
        asked.append(token("ann", -100))
        return asked[-1]

    with pytest.raises(Unauthorized) as raised:
        connect(guarded.url, token=ask).feed("ann")
    assert (raised.value.status, raised.value.code, len(asked)) == (401, "token_expired", 2)


def test_a_key_is_sent_and_its_lack_is_told(connect: Connect, guarded: Server) -> None:
    assert connect(guarded.url, token=KEY).feed("ann").items == []
    with pytest.raises(Unauthorized):
        connect(guarded.url).feed("ann")
    with pytest.raises(Forbidden):
        connect(guarded.url, token=token("ann")).feed("bob")


def test_a_user_whose_ids_the_server_chooses_can_publish(connect: Connect, guarded: Server) -> None:
    # The first one is not refused either: with retries it would not show.
    client = connect(guarded.url, token=token("ann"), retries=0)
    assert [client.publish("ann", n).body for n in range(2)] == [0, 1]
    with pytest.raises(Forbidden):
        client.publish("ann", 2, id="77")
    with pytest.raises(Forbidden):
        client.publish("bob", 3)
