"""The comparison of the migration scripts, beside feeds that are wrong in one way each, also in ways in which a server never is."""

import unittest

from api import time_of
from compare import Comparison, OldFeed

# Each id is also the time, in seconds.
SECOND = 1_000_000


def post(key, author, **more):
    """Returns a post as the old database has it."""
    return {"id": str(key), "author": author, "published_at": time_of(key * SECOND), "body": {"text": "one"}, **more}


def repost(key, author, original, **more):
    return post(key, author, repost_of=str(original), **more)


def item(shown, *reposts, via=("bob", "cas")):
    """Returns an entry as a page of Tidewire has it."""
    of_reposts = [{"user": one["author"], "at": one["published_at"], "post": one["id"]} for one in reposts]
    return {"post": shown, "reposts": of_reposts, "via": [user for user in via if user in {shown["author"], *(one["author"] for one in reposts)}]}


class Old:
    """The old database: ann follows bob, cas, eve and fay, and has muted eve."""

    def __init__(self, posts, timeline, shows_all=False, floor=None):
        self.posts, self.shows_all = {one["id"]: one for one in posts}, shows_all
        self.timeline, self.floor = timeline, floor

    def feed(self, reader, depth, counts):
        shown = [(one, self.posts.get(one.get("repost_of")), int(one["id"]) * SECOND) for one in self.timeline]
        return OldFeed(shown, self.floor)

    def following(self, reader):
        return {"bob", "cas", "eve", "fay"}

    def muted(self, reader):
        return {"eve"}

    def find(self, ids):
        return {key: self.posts[key] for key in ids if key in self.posts}


class New:
    """Tidewire: answers with one page."""

    def __init__(self, items):
        self.items = items

    def ask(self, method, path):
        return {"items": self.items, "next": None, "partial": []}


BOB, OF_DAN, OF_EVE, OF_ANN = post(10, "bob"), post(20, "dan"), post(22, "eve"), post(24, "ann")
BY_CAS, BY_CAS_LATER, BY_FAY, BY_EVE, BY_DAN = (
    repost(30, "cas", 20),
    repost(36, "cas", 20),
    repost(32, "fay", 20),
    repost(34, "eve", 20),
    repost(38, "dan", 10),
)
POSTS = [BOB, OF_DAN, OF_EVE, OF_ANN, BY_CAS, BY_CAS_LATER, BY_FAY, BY_EVE, BY_DAN]
GONE = "the old database does not have {}, or it is deleted there"
NEW_20, NEW_10 = "20 of dan was not there before: ", "10 of bob was not there before: "
PUSHED = "posts that were not pushed, such as those from before a follow"

# What the feed has besides the post 1 of bob, which is equal; what the timeline has besides; and what is said of it.
ADDED = {
    "a post of a followed user": ([item(BOB)], [], [PUSHED]),
    "a live repost of a post of a stranger": ([item(OF_DAN, BY_CAS)], [], [PUSHED]),
    "an own post": ([item(OF_ANN)], [], ["own posts that the timeline lacked"]),
    "an own repost": ([item(OF_DAN, repost(40, "ann", 20))], [], ["own posts that the timeline lacked"]),
    "a post that is deleted": ([item(post(11, "bob"))], [], ["11 of bob was not there before: " + GONE.format("post 11")]),
    "a post of a stranger": ([item(OF_DAN)], [], [NEW_20 + "ann does not follow dan"]),
    "a post of somebody who is muted": ([item(OF_EVE)], [], ["22 of eve was not there before: ann has muted eve"]),
    "a live repost of a post of somebody who is muted": (
        [item(OF_EVE, repost(41, "cas", 22))],
        [],
        ["22 of eve was not there before: ann has muted eve"],
    ),
    "a repost that is deleted": (
        [item(OF_DAN, repost(31, "cas", 20))],
        [],
        [NEW_20 + GONE.format("repost 31 of cas") + "; ann does not follow dan"],
    ),
    "a post of a followed user at the place of a repost that is deleted": (
        [item(BOB, repost(31, "cas", 10))],
        [],
        [NEW_10 + GONE.format("repost 31 of cas")],
    ),
    "a repost by somebody who is muted": ([item(OF_DAN, BY_EVE)], [], [NEW_20 + "ann has muted eve of repost 34; ann does not follow dan"]),
    "a repost by somebody who is not followed": ([item(BOB, BY_DAN)], [], [NEW_10 + "ann does not follow dan of repost 38"]),
    "a repost of another post": (
        [item(OF_DAN, repost(42, "cas", 20))],
        [],
        [
            NEW_20
            + "repost 42 was of 10 by cas at 1970-01-01T00:00:42.000000Z, is of 20 by cas at 1970-01-01T00:00:42.000000Z; ann does not follow dan"
        ],
    ),
    "a repost of somebody else": (
        [item(OF_DAN, repost(32, "cas", 20))],
        [],
        [
            NEW_20
            + "repost 32 was of 20 by fay at 1970-01-01T00:00:32.000000Z, is of 20 by cas at 1970-01-01T00:00:32.000000Z; ann does not follow dan"
        ],
    ),
    "a repost as a post of its own": ([item(post(30, "cas"))], [], ["30 of cas was not there before: post 30 was a repost of 20"]),
    "another text": ([item({**BOB, "body": 1})], [], [NEW_10 + "body was {'text': 'one'}, is 1"]),
    "another author": ([item({**OF_DAN, "author": "bob"})], [], ["20 of bob was not there before: author was 'dan', is 'bob'"]),
    "a live repost beside a deleted one": (
        [item(OF_DAN, BY_CAS, repost(33, "fay", 20))],
        [BY_CAS],
        [
            "20: the old database does not have repost 33 of fay, or it is deleted there; place was 1970-01-01T00:00:30.000000Z, "
            "is 1970-01-01T00:00:33.000000Z"
        ],
    ),
    "an older repost that is deleted": (
        [item(OF_DAN, BY_CAS, repost(21, "fay", 20))],
        [BY_CAS],
        ["20: " + GONE.format("repost 21 of fay")],
    ),
    "a repost fewer": ([item(OF_DAN, BY_FAY)], [BY_FAY, BY_CAS], ["20: repost 30 of cas is missing"]),
    "a repost that was not pushed": (
        [item(OF_DAN, BY_FAY, BY_CAS)],
        [BY_CAS],
        ["entries at the place of a repost that was not pushed"],
    ),
    "a newer repost of the same user": (
        [item(OF_DAN, BY_CAS_LATER)],
        [BY_CAS],
        ["entries at the place of a repost that was not pushed"],
    ),
    "a repost with an earlier time than its post": ([item(post(44, "dan"), repost(43, "cas", 44))], [repost(43, "cas", 44)], []),
    "a post twice": (
        [item(BOB), item(BOB)],
        [BOB],
        ["the order is wrong: 10 is directly above 10, which is newer", "posts are there more than once: 10"],
    ),
    "a wrong order": ([item(BOB), item(OF_ANN)], [OF_ANN, BOB], ["the order is wrong: 10 is directly above 24, which is newer"]),
}

# The same beside a query that shows all.
ADDED_TO_ALL = {
    "a post of a followed user": ([item(BOB)], [], ["10 of bob was not there before"]),
    "an own post": ([item(OF_ANN)], [], ["24 of ann was not there before"]),
    "an older repost": ([item(OF_DAN, BY_FAY, BY_CAS)], [BY_FAY], ["20: repost 30 of cas was not there before"]),
    "a repost fewer": ([item(OF_DAN, BY_FAY)], [BY_FAY, BY_CAS], ["20: repost 30 of cas is missing"]),
}


class WhatOnlyTheNewFeedHas(unittest.TestCase):
    def check(self, cases, shows_all):
        last = post(1, "bob")
        posts = [*POSTS, last, repost(40, "ann", 20), repost(41, "cas", 22), repost(42, "cas", 10), post(44, "dan")]
        for name, (items, timeline, said) in cases.items():
            with self.subTest(name):
                old = Old(posts, [*timeline, last], shows_all)
                comparison = Comparison(New([*items, item(last)]), old, 100)
                comparison.compare("ann")
                counts = {what for what, count in comparison.counts.items() if count} - {"readers", "differences", "entries that are equal"}
                found = [difference.removeprefix("feed of ann: ") for difference in comparison.differences]
                self.assertEqual([*sorted(counts), *found], said)

    def test_beside_a_timeline_is_explained_or_wrong(self):
        self.check(ADDED, shows_all=False)

    def test_beside_a_query_that_shows_all_is_wrong(self):
        self.check(ADDED_TO_ALL, shows_all=True)

    def test_is_known_of_a_query_down_to_its_last_row(self):
        # The repost 30 is below the last row, which is of the time 31.
        old = Old(POSTS, [BY_FAY], shows_all=True, floor=31 * SECOND)
        comparison = Comparison(New([item(OF_DAN, BY_FAY, BY_CAS)]), old, 100)
        comparison.compare("ann")
        self.assertEqual((comparison.counts["entries that are equal"], comparison.differences), (1, []))


if __name__ == "__main__":
    unittest.main()
