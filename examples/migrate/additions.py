"""Checks entries that a feed has now and did not have before: the posts, follows and mutes of the old database must explain them.

Of an old application, only the stored timeline of a reader is known. Tidewire also shows posts that were never stored there, such as those before a
follow. Each such addition must be correct by itself: the post and the reposts that bring it exist with the same content in the old database, and the
reader follows their authors, and has not muted them.
"""

import functools

from api import content, time_of

# RedisSource.find returns this for a post that exists, but cannot be read.
UNREADABLE = object()

OWN = "own posts that the timeline lacked"
NOT_PUSHED = "posts that were not pushed, such as those from before a follow"
NOT_READ = "posts that cannot be read, not compared"


class Additions:
    """Checks the additions of one reader's feed. Reads the old database only if there are any."""

    def __init__(self, source, reader, entries, reposts):
        """`entries` are wholly new; `reposts` are ids of new reposts in other entries."""
        self._source, self._reader = source, reader
        ids = set(reposts)
        for entry in entries:
            ids.update([entry["post"]["id"]], (repost.id for repost in entry["reposts"].values()))
        self._posts = source.find(ids) if ids else {}

    @functools.cached_property
    def _followed(self):
        return self._source.following(self._reader)

    @functools.cached_property
    def _muted(self):
        return self._source.muted(self._reader)

    def check(self, entry):
        """Returns the reason why a new entry is correct, and an empty text; or None and its faults."""
        key, author, reposts = entry["post"]["id"], entry["post"]["author"], entry["reposts"]
        post = self._posts.get(key)
        if post is None:
            return None, f"the old database does not have post {key}, or it is deleted there"
        wrong = [] if post is UNREADABLE else changes(post, entry["post"])
        if post is not UNREADABLE and "repost_of" in post:
            wrong.append(f"post {key} was a repost of {post['repost_of']}")
        if author in self._muted:
            wrong.append(f"{self._reader} has muted {author}")
        wrong_reposts = [problem for user, repost in reposts.items() if (problem := self.repost_problem(entry, user, repost))]
        wrong += wrong_reposts
        is_followed = author == self._reader or author in self._followed
        if not is_followed and len(wrong_reposts) == len(reposts):
            wrong.append(f"{self._reader} does not follow {author}")
        if wrong:
            return None, "; ".join(wrong)
        if any(self._posts[one] is UNREADABLE for one in [key, *(repost.id for repost in reposts.values())]):
            return NOT_READ, ""
        return (OWN if self._reader in {author, *reposts} else NOT_PUSHED), ""

    def repost_problem(self, entry, user, repost):
        """Returns the fault of a repost that only the new feed has, or None."""
        key, post = entry["post"]["id"], self._posts.get(repost.id)
        if post is None:
            return f"the old database does not have repost {repost.id} of {user}, or it is deleted there"
        if user in self._muted:
            return f"{self._reader} has muted {user} of repost {repost.id}"
        if user != self._reader and user not in self._followed:
            return f"{self._reader} does not follow {user} of repost {repost.id}"
        if post is UNREADABLE:
            return None
        was = (post["author"], post.get("repost_of"), content(post)["published_at"])
        if was != (user, key, repost.at):
            return f"repost {repost.id} was of {was[1]} by {was[0]} at {time_of(was[2])}, is of {key} by {user} at {time_of(repost.at)}"
        return None


def changes(was, now):
    """Returns the differences of a post before and after."""
    was, now = content(was), content(now)
    return [f"{name} was {was[name]!r}, is {now[name]!r}" for name in was if was[name] != now[name]]
