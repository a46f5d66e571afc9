"""The import: writes into a Tidewire server in batches, and counts.

All requests are idempotent: an existing follow stays, a post with the same id and content is published once.
"""

import collections
import contextlib
import json
import time

from api import Refused, batches, content, is_source, user_path

POSTS_PER_REQUEST = 1_000
EDGES_PER_REQUEST = 10_000
IDS_PER_REQUEST = 100
# The server accepts 3,580,000 bytes.
REQUEST_BYTES_MAX = 3_400_000
REFUSALS_SHOWN_MAX = 50


class Target:
    """Writes into a server, and counts."""

    def __init__(self, server):
        self.server = server
        self.counts = collections.Counter()
        # The name of a post in a refusal.
        self.name_of_post = "post {}".format
        # False: refuses a post that is deleted only in Tidewire.
        self.keeps_deleted = False
        self.refusals = []
        self.is_resumed = False

    def refuse(self, what, why):
        self.counts["refused"] += 1
        if len(self.refusals) < REFUSALS_SHOWN_MAX:
            self.refusals.append(f"{what}: {why}")

    def publish(self, posts):
        """Publishes any number of posts, in their order."""
        size, batch = 0, []
        for post in posts:
            bytes_of_post = len(json.dumps(post)) + 2
            if batch and (len(batch) == POSTS_PER_REQUEST or size + bytes_of_post > REQUEST_BYTES_MAX):
                self._publish(batch)
                size, batch = 0, []
            batch.append(post)
            size += bytes_of_post
        self._publish(batch)

    def _publish(self, posts):
        while posts:
            results = self.server.ask("POST", "/v1/posts/batch", {"posts": posts})["posts"]
            again = []
            for post, result in zip(posts, results):
                problem = result.get("problem")
                if problem is None:
                    self.counts["posts published" if result["created"] else "posts that were there already"] += 1
                elif "retry_after" in problem:
                    again.append(post)
                elif problem["code"] == "post_deleted" and self.keeps_deleted:
                    self.counts["posts that are deleted in Tidewire, left out"] += 1
                elif problem["code"] == "post_id_taken":
                    with self.refusing(self.name_of_post(post["id"])):
                        self._edit(post, problem)
                else:
                    self.refuse(self.name_of_post(post["id"]), f"{problem['code']}: {problem['detail']}")
            if len(again) == len(posts):
                time.sleep(1)
            posts = again

    def _edit(self, post, problem):
        """Changes the body of a post that was edited in the old database since it was published here. Nothing else of a post can change."""
        was, now = content(self.server.ask("GET", f"/v1/posts/{post['id']}")), content(post)
        if was == now:
            self.counts["posts that were there already"] += 1
        elif {**was, "body": now["body"]} == now:
            self.server.ask("PATCH", f"/v1/posts/{post['id']}", {"body": post["body"]})
            self.counts["posts edited"] += 1
        else:
            self.refuse(self.name_of_post(post["id"]), f"{problem['code']}: {was} is there in place of {now}")

    def follow(self, edges):
        """Adds (follower, source) edges. An edge to oneself is left out: feeds have the reader's own posts anyway."""
        for batch in batches(self._checked(edges, "follow"), EDGES_PER_REQUEST):
            edges = [{"follower": follower, "source": source} for follower, source in batch]
            while edges:
                try:
                    done = self.server.ask("POST", "/v1/follows", {"follows": edges})
                    self.counts["follows added"] += done["created"]
                    self.counts["follows that were there already"] += done["existing"]
                    break
                except Refused as refused:
                    wrong = {part["index"]: part["detail"] for part in refused.problem.get("errors", [])}
                    if not wrong:
                        raise
                    for index, why in wrong.items():
                        self.refuse(f"follow {edges[index]['follower']} -> {edges[index]['source']}", why)
                    edges = [edge for index, edge in enumerate(edges) if index not in wrong]

    def mute(self, mutes):
        for user, source in self._checked(mutes, "mute"):
            with self.refusing(f"mute {user} -> {source}"):
                self.server.ask("PUT", user_path(user, "mutes", source))
                self.counts["mutes"] += 1

    def _checked(self, pairs, what):
        for user, source in pairs:
            if user == source:
                self.counts[f"{what}s of oneself, left out"] += 1
            elif is_source(user) and is_source(source):
                yield user, source
            else:
                self.refuse(f"{what} {user} -> {source}", "an id has 1 to 128 of the characters A-Z a-z 0-9 . _ : @ ~ -")

    def delete(self, ids):
        """Deletes the posts with these ids that the server has."""
        for batch in batches(ids, IDS_PER_REQUEST):
            for post in self.server.ask("GET", f"/v1/posts?ids={','.join(batch)}")["posts"]:
                with self.refusing(f"post {post['id']}"):
                    self.server.ask("DELETE", f"/v1/posts/{post['id']}")
                    self.counts["posts deleted"] += 1

    @contextlib.contextmanager
    def refusing(self, what):
        """Counts a request that the server refuses, and continues."""
        try:
            yield
        except Refused as refused:
            self.refuse(what, refused)

    def set_replies(self, source, which):
        """Sets the rule `replies` of each reader."""
        for reader in filter(is_source, source.readers()):
            self.set_rules(reader, {"replies": which})

    def set_rules(self, reader, rules):
        with self.refusing(f"rules of {reader}"):
            self.server.ask("PATCH", user_path(reader, "rules"), rules)
            self.counts["rules set"] += 1
