"""A client that openapi-python-client has generated, against a real server: typed answers and typed refusals."""

from __future__ import annotations

import datetime
import sys
from http import HTTPStatus
from typing import TypeVar

from tidewire_api import AuthenticatedClient, Client
from tidewire_api.api.changes import read_changes
from tidewire_api.api.feeds import explain, read_feed, read_feeds
from tidewire_api.api.following import follow, follow_many, list_following, read_user, unfollow
from tidewire_api.api.personal import change_rules, mark, mute
from tidewire_api.api.posts import delete_post, edit_post, publish, publish_many, read_post, read_posts
from tidewire_api.api.server import check_alive, read_cluster, read_metrics, read_stats
from tidewire_api.models.explanation_blockers_item_type_3 import ExplanationBlockersItemType3
from tidewire_api.models.feed_of_user import FeedOfUser
from tidewire_api.models.feeds_request import FeedsRequest
from tidewire_api.models.follow_options import FollowOptions
from tidewire_api.models.followed import Followed
from tidewire_api.models.follows_request import FollowsRequest
from tidewire_api.models.follows_request_follows_item import FollowsRequestFollowsItem
from tidewire_api.models.mark import Mark
from tidewire_api.models.new_post import NewPost
from tidewire_api.models.page import Page
from tidewire_api.models.post import Post
from tidewire_api.models.post_change import PostChange
from tidewire_api.models.posts_request import PostsRequest
from tidewire_api.models.problem import Problem
from tidewire_api.models.publish_wait import PublishWait
from tidewire_api.models.published_post import PublishedPost
from tidewire_api.models.put import Put
from tidewire_api.models.read_feed_fields import ReadFeedFields
from tidewire_api.models.refused_post import RefusedPost
from tidewire_api.models.rules import Rules
from tidewire_api.models.rules_patch import RulesPatch
from tidewire_api.models.rules_patch_replies import RulesPatchReplies

T = TypeVar("T")


def good(answer: T | Problem | None) -> T:
    """Returns an answer that is no refusal."""
    assert answer is not None and not isinstance(answer, Problem), answer
    return answer


def refused(answer: object, status: int, code: str) -> Problem:
    """Returns a refusal, of this code."""
    assert isinstance(answer, Problem), answer
    assert (answer.status, answer.code) == (status, code), answer
    return answer


def exercise(client: AuthenticatedClient, anybody: Client, guarded: AuthenticatedClient) -> None:
    assert isinstance(good(follow.sync("ann", "bob", client=client, body=FollowOptions(backfill=5))), Put)
    time = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
    new = NewPost(author="bob", body={"text": "hello"}, tags=["rust"], published_at=time)
    post: Post = good(publish.sync(client=client, body=new, wait=PublishWait.DELIVERED))
    assert (post.author, post.body, post.tags, post.published_at) == ("bob", {"text": "hello"}, ["rust"], time)
    assert good(read_post.sync(post.id, client=client)) == post

    page: Page = good(read_feed.sync("ann", client=client, limit=5))
    [item] = page.items
    assert (item.post, item.via, page.next_, page.partial) == (post, ["bob"], None, [])
    [short] = good(read_feed.sync("ann", client=client, fields=ReadFeedFields.IDS)).items
    assert short.post.id == post.id and not short.post.body
    assert isinstance(page.newest, str)
    assert good(mark.sync("ann", client=client, body=Mark(cursor=page.newest))).unread == 0

    assert good(edit_post.sync(post.id, client=client, body=PostChange(body=None))).body is None
    many = [NewPost(author="bob", body=1, id="77"), NewPost(author="tag:rust", body=2)]
    first, second = good(publish_many.sync(client=client, body=PostsRequest(posts=many))).posts
    assert isinstance(first, PublishedPost) and first.created and first.post.id == "77"
    assert isinstance(second, RefusedPost) and second.problem.code == "not_a_user"
    found = good(read_posts.sync(client=client, ids="77,78"))
    assert ([each.id for each in found.posts], found.missing) == (["77"], ["78"])
    [feed] = good(read_feeds.sync(client=client, body=FeedsRequest(users=["ann"]))).feeds
    assert isinstance(feed, FeedOfUser) and feed.user == "ann"

    named: Post = good(publish.sync(client=client, body=NewPost(author="dan", body=4, external_id="urn:x:1")))
    assert named.external_id == "urn:x:1" and good(read_post.sync("ext:urn:x:1", client=client)) == named

    edges = [FollowsRequestFollowsItem(follower="cas", source="bob")]
    followed: Followed = good(follow_many.sync(client=client, body=FollowsRequest(follows=edges)))
    assert (followed.created, followed.existing) == (1, 0)
    assert [each.id for each in good(list_following.sync("cas", client=client)).items] == ["bob"]
    assert good(read_user.sync("bob", client=client)).followers == 2
    good(mute.sync("ann", "bob", client=client))
    explanation = good(explain.sync("ann", "77", client=client))
    assert not explanation.shown and isinstance(explanation.blockers[0], ExplanationBlockersItemType3)
    assert explanation.blockers[0].source == "bob"
    rules: Rules = good(change_rules.sync("ann", client=client, body=RulesPatch(replies=RulesPatchReplies.ALL, per_source_max=None)))
    assert rules.replies == "all" and rules.per_source_max is None

    lines = good(read_changes.sync(client=client, after=0, types="published"))
    assert lines.count('"type":"published"') == 3
    assert good(read_stats.sync(client=client)).posts >= 2
    assert "tidewire_" in good(read_metrics.sync(client=client))
    assert good(check_alive.sync(client=anybody)).alive is True
    assert unfollow.sync_detailed("cas", "bob", client=client).status_code == HTTPStatus.NO_CONTENT
    assert delete_post.sync_detailed("77", client=client).status_code == HTTPStatus.NO_CONTENT

    refused(read_post.sync("77", client=client), 404, "unknown_post")
    assert refused(read_feed.sync("ann", client=client, limit=101), 400, "invalid_parameter").field == "limit"
    refused(publish.sync(client=client, body=NewPost(author="bob", body=3, id=post.id)), 409, "post_id_taken")
    errors = refused(
        follow_many.sync(client=client, body=FollowsRequest(follows=[*edges, FollowsRequestFollowsItem("ann", "ann")])), 422, "self_follow"
    ).errors
    assert errors and errors[0].index == 1
    refused(publish.sync(client=client, body=NewPost(author="bob", body="x" * 90_000)), 413, "body_too_large")
    refused(read_cluster.sync(client=client), 404, "no_cluster")
    assert refused(read_changes.sync(client=client, after=10**9), 400, "sequence_in_future").newest
    refused(read_feed.sync("ann", client=guarded), 401, "invalid_token")


if __name__ == "__main__":
    open_url, keyed_url = sys.argv[1:]
    with (
        AuthenticatedClient(base_url=open_url, token="unused", raise_on_unexpected_status=True) as client,
        Client(base_url=open_url, raise_on_unexpected_status=True) as anybody,
        AuthenticatedClient(base_url=keyed_url, token="wrong", raise_on_unexpected_status=True) as guarded,
    ):
        exercise(client, anybody, guarded)
    print("the generated Python client: typed answers and refusals")
