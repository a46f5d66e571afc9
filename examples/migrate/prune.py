"""`import --prune`: removes posts, follows and mutes that the old database does not have any more.

A command that reads the wrong database finds it empty. So nothing at all is removed if more than half of one kind would be.
"""

import itertools
import sys

from api import LEFT_OUT, PAGE_MAX, batches, everybody, form, user_path
from target import EDGES_PER_REQUEST

KINDS = ("posts", "follows", "mutes")


class Pruner:
    """Compares a server with the old database, and removes posts, follows and mutes that only the server has."""

    def __init__(self, target, source, allowed):
        """`allowed` are the kinds of which more than half may be removed."""
        self.target, self.server, self.source, self.allowed = target, target.server, source, allowed

    def prune(self):
        """Removes what only Tidewire has. Takes about 100 bytes of memory for each of its posts, and 200 for each follow and mute to remove.

        Reads Tidewire first, and the old database afterwards, so that a write to both meanwhile does not count as gone.
        """
        users, unknown = everybody(self.server, self.source)
        self.target.counts[LEFT_OUT] += unknown
        posts = self._gone_posts(users)
        follows = self._gone_edges(users, "following", self.source.following)
        mutes = self._gone_edges(users, "mutes", self.source.muted)
        self._refuse_most([posts, follows, mutes])
        # Posts first, because the follows lead to their authors, even after an interruption and a new start.
        self.target.delete(map(str, sorted(posts[0])))
        self._remove_follows(follows[0])
        self._remove_mutes(mutes[0])

    def _refuse_most(self, found):
        refused = [
            (kind, f"{len(gone):,} of {here:,} {kind}")
            for kind, (gone, here) in zip(KINDS, found)
            if 2 * len(gone) > here and kind not in self.allowed
        ]
        if refused:
            what = ", ".join(text for _, text in refused)
            flags = " ".join(f"--prune-most {kind}" for kind, _ in refused)
            sys.exit(
                f"nothing was pruned: {what} of Tidewire are not in the old database, which is more than half. Is it the right database, and does "
                f"the beginning of the script fit it? If all of these are to be removed, add {flags}"
            )

    def _gone_posts(self, authors):
        """Returns the ids of posts that only Tidewire has, and the number of all its posts."""
        gone = set()
        for author in authors:
            with self.target.refusing(f"posts of {author}"):
                for item in self.server.pages(user_path(author, "posts"), PAGE_MAX, "before"):
                    # Reposts are entries of the original.
                    gone.update(int(repost["post"]) for repost in item["reposts"] if repost["user"] == author)
                    gone.update([int(item["post"]["id"])] if item["post"]["author"] == author else [])
        here = len(gone)
        for key in self.source.live_ids():
            gone.discard(int(key))
        return gone, here

    def _gone_edges(self, users, side, read):
        """Returns the edges of users on this side that only Tidewire has, and the number of all its edges."""
        gone, here = [], 0
        for user in users:
            with self.target.refusing(f"{side} of {user}"):
                found = [item["id"] for item in self.server.pages(user_path(user, side), PAGE_MAX, "cursor")]
                here += len(found)
                there = set(map(form, read(user))) if found else set()
                gone += [(user, one) for one in found if one not in there]
        return gone, here

    def _remove_follows(self, follows):
        for batch in batches(self._still_gone(follows, self.source.following), EDGES_PER_REQUEST):
            edges = [{"follower": user, "source": one} for user, one in batch]
            with self.target.refusing(f"removing {len(edges):,} follows, from {batch[0][0]} on"):
                self.server.ask("POST", "/v1/follows", {"unfollows": edges})
                self.target.counts["follows removed"] += len(edges)

    def _remove_mutes(self, mutes):
        for user, one in self._still_gone(mutes, self.source.muted):
            with self.target.refusing(f"mute {user} -> {one}"):
                self.server.ask("DELETE", user_path(user, "mutes", one))
                self.target.counts["mutes removed"] += 1

    def _still_gone(self, edges, read):
        """Yields the edges that have not come back to the old database since it was read."""
        for user, of_user in itertools.groupby(edges, key=lambda edge: edge[0]):
            there = set(map(form, read(user)))
            yield from (edge for edge in of_user if edge[1] not in there)
