#!/usr/bin/env python3
"""Moves feeds from Redis sorted sets or lists to Tidewire, and compares them.

    python3 examples/migrate/from_redis.py import --redis "redis-cli -h 127.0.0.1"
    python3 examples/migrate/from_redis.py compare --redis "redis-cli -h 127.0.0.1"

It reads with redis-cli 7.0 or newer, also from older servers. The command has the options of the connection: host, password, TLS, Unix socket.
It needs no other packages. Adapt the names of keys and the function `post` below. docs/migrate-from-redis.md is the guide.
"""

import collections
import contextlib
import decimal
import functools
import json
import re
import shlex
import subprocess
import sys

from additions import NOT_READ, UNREADABLE
from api import ids_of, microseconds_of, post_id, time_of
from commands import arguments, run
from compare import OldFeed

# The keys, with %s for the id of the user or post, which has no colon.
FOLLOWING = "following:%s"  # a set, a sorted set or a list: whom the user follows
TIMELINE = "timeline:%s"  # a sorted set: ids of posts that were pushed to the reader, by time; or a list, the newest first
POSTS = "posts:%s"  # a sorted set: ids of the author's posts, by time; or a list, the newest first
POST = "post:%s"  # a hash
MUTED = "muted:%s"  # a set: whom the user has muted
CELEBRITIES = "celebrities"  # a set: authors whose posts are not pushed, but merged into the feed when it is read

# One second in the field `created_at` and in scores.
TIME_UNITS = 1_000


def post(key, fields):
    """Returns a post as POST /v1/posts accepts it, or None if it is marked as deleted. Raises an error if it cannot be read."""
    if fields.get("deleted") == "1":
        return None
    made = {
        **ids_of(key),
        "author": fields["author"],
        "published_at": time_of(microseconds(fields["created_at"])),
        "body": {"text": fields["text"]},
    }
    if fields.get("tags"):
        made["tags"] = fields["tags"].split(",")
    for reference in ("reply_to", "repost_of"):
        if fields.get(reference):
            made[reference] = post_id(fields[reference])
    return made


def microseconds(time):
    return round(decimal.Decimal(time) * 1_000_000 / TIME_UNITS)


# The size of the commands that are sent together: they must fit into a pipe, or both sides wait for each other.
COMMANDS_BYTES_MAX = 32_000
SCAN_COUNT = 1_000


class Redis:
    """A running redis-cli, with one command and one answer per line."""

    def __init__(self, command):
        self._words = [*shlex.split(command), "-2", "--json"]
        try:
            # A running redis-cli does not answer without a connection.
            tried = subprocess.run([*self._words, "PING"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            if tried.returncode:
                sys.exit(f"{' '.join(self._words)} PING ended with {tried.returncode}")
            self._cli = subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as cause:
            sys.exit(f"--redis {command!r} cannot be run: {cause}")

    def ask(self, *words):
        return next(self.ask_all([words]))

    def ask_all(self, commands):
        """Yields the answer of each command."""
        lines, size = [], 0
        for words in commands:
            line = " ".join(map(quoted, words)).encode() + b"\n"
            if lines and size + len(line) > COMMANDS_BYTES_MAX:
                yield from self._exchange(lines)
                lines, size = [], 0
            lines.append(line)
            size += len(line)
        yield from self._exchange(lines)

    def _exchange(self, lines):
        try:
            self._cli.stdin.write(b"".join(lines))
            self._cli.stdin.flush()
        except BrokenPipeError:
            self._end("ended before it answered", lines[0])
        # Replaces the invalid bytes of text that is not UTF-8.
        answers = [self._cli.stdout.readline().decode(errors="replace") for _ in lines]
        for line, answer in zip(lines, answers):
            try:
                found = json.loads(answer, strict=False)
            except ValueError:
                self._end(f"answered {answer.strip()!r} to" if answer else "ended before it answered", line)
            yield found

    def _end(self, what, line):
        # Drops unsent data here, or Python reports it at exit.
        with contextlib.suppress(BrokenPipeError):
            self._cli.stdin.close()
        sys.exit(f"{' '.join(self._words)} {what} {line.decode().strip()}")

    def scan(self, *command):
        """Yields the results of a SCAN, SSCAN or ZSCAN in pieces. An element may come twice."""
        cursor = "0"
        while True:
            cursor, piece = self.ask(*command[:-1], cursor, *command[-1])
            yield piece
            if cursor == "0":
                return

    def keys(self, pattern):
        """Yields lists of the ids in the keys of a pattern."""
        before, _, after = pattern.partition("%s")
        ids = re.compile(f"{re.escape(before)}([^:]*){re.escape(after)}", re.DOTALL)
        for keys in self.scan("SCAN", ("MATCH", pattern % "*", "COUNT", SCAN_COUNT)):
            yield [match[1] for match in map(ids.fullmatch, keys) if match]

    def members(self, key):
        """Yields the members of a set or sorted set in pieces, however large it is."""
        kind = self.ask("TYPE", key)
        if kind == "zset":
            for piece in self.scan("ZSCAN", key, ("COUNT", SCAN_COUNT)):
                yield piece[::2]
        elif kind == "set":
            yield from self.scan("SSCAN", key, ("COUNT", SCAN_COUNT))
        elif kind == "list":
            first = 0
            while piece := self.ask("LRANGE", key, first, first + SCAN_COUNT - 1):
                yield piece
                first += SCAN_COUNT
        elif kind != "none":
            sys.exit(f"{key} is a {kind}, neither a set, nor a sorted set, nor a list")


def quoted(word):
    return '"' + str(word).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r") + '"'


# By key: posts as POST /v1/posts accepts them; the keys of deleted ones; the reasons why others could not be read.
Posts = collections.namedtuple("Posts", "readable deleted unreadable")

# Replaces the original of a repost if that is deleted.
DELETED = object()


class RedisSource:
    """The old database."""

    # Feeds have pushed posts only: they may lack existing posts.
    shows_all = False

    def __init__(self, redis):
        self.redis = redis

    def copy_to(self, target):
        # Follows first, so that posts published meanwhile are pushed.
        for users in self.redis.keys(FOLLOWING):
            target.follow((user, source) for user in users for piece in self.redis.members(FOLLOWING % user) for source in piece)
        for users in self.redis.keys(MUTED):
            target.mute((user, source) for user in users for piece in self.redis.members(MUTED % user) for source in piece)
        # Replies and reposts last, after the posts that they name.
        for names_another in (False, True):
            for keys in self.redis.keys(POST):
                found = self.posts(keys)
                if not names_another:
                    target.delete([post_id(key) for key in found.deleted])
                    for key, why in found.unreadable.items():
                        target.refuse(POST % key, why)
                posts = (post for post in found.readable.values() if names_another == bool(post.keys() & {"reply_to", "repost_of"}))
                target.publish(sorted(posts, key=lambda post: post["published_at"]))

    def posts(self, keys):
        """Returns the posts of these keys. A missing hash is in no part: it may have expired, or not be written yet."""
        found = Posts({}, [], {})
        for key, fields in zip(keys, self.redis.ask_all(("HGETALL", POST % key) for key in keys)):
            if not fields:
                continue
            try:
                made = post(key, dict(zip(fields[::2], fields[1::2])))
            except (KeyError, TypeError, ValueError, ArithmeticError) as cause:
                found.unreadable[key] = repr(cause)
                continue
            if made is None:
                found.deleted.append(key)
            else:
                found.readable[key] = made
        return found

    def readers(self):
        """Yields each user with follows, a timeline or posts once."""
        seen = set()
        for pattern in (FOLLOWING, TIMELINE, POSTS):
            for users in self.redis.keys(pattern):
                yield from (user for user in users if user not in seen)
                seen.update(users)

    def following(self, user):
        return {source for piece in self.redis.members(FOLLOWING % user) for source in piece} - {user}

    def muted(self, user):
        return {source for piece in self.redis.members(MUTED % user) for source in piece} - {user}

    def live_ids(self):
        """Yields the ids of all posts except deleted ones. Posts that cannot be read count as not deleted."""
        for keys in self.redis.keys(POST):
            found = self.posts(keys)
            yield from (post_id(key) for part in (found.readable, found.unreadable) for key in part)

    def feed(self, reader, depth, counts):
        """Returns the feed as an application reads it: the timeline, merged with the posts of followed celebrities."""
        followed = self.following(reader)
        muted = self.muted(reader)
        celebrities = {source for piece in self.redis.members(CELEBRITIES) for source in piece} & followed
        lists = [TIMELINE % reader, *(POSTS % author for author in sorted(celebrities))]
        kinds = list(self.redis.ask_all(("TYPE", key) for key in lists))
        reads = {"list": ("LRANGE",), "zset": ("ZREVRANGE", "WITHSCORES"), "none": ("ZREVRANGE", "WITHSCORES")}
        for key, kind in zip(lists, kinds):
            if kind not in reads:
                sys.exit(f"{key} is a {kind}, neither a sorted set nor a list")
        commands = [(reads[kind][0], key, 0, depth - 1, *reads[kind][1:]) for key, kind in zip(lists, kinds)]
        scores, floors = {}, []
        for nth, (kind, answer) in enumerate(zip(kinds, self.redis.ask_all(commands))):
            scored = self._scored(answer) if kind == "list" else dict(zip(answer[::2], map(microseconds, answer[1::2])))
            scores.update(scored)
            # A timeline is usually trimmed, so posts below its end are unknown. The list of an author is complete.
            if scored and (nth == 0 or len(scored) == depth):
                floors.append(list(scored.values())[-1])
        keys = sorted(scores, key=scores.get, reverse=True)
        found = self.posts(keys)
        originals = self._originals(found)
        shown = []
        for key in keys:
            post, original = found.readable.get(key), originals.get(key)
            if key in found.unreadable or original is UNREADABLE:
                counts[NOT_READ] += 1
            elif post is None or original is DELETED:
                counts["deleted posts that a timeline still had, left out"] += 1
            elif post["author"] not in followed | {reader}:
                counts["posts of authors that are not followed any more, left out"] += 1
            elif post["author"] in muted or (original and original["author"] in muted):
                counts["posts of muted authors, left out"] += 1
            else:
                shown.append((post, original, scores[key]))
        return OldFeed(shown, max(floors, default=None))

    def _scored(self, keys):
        """Returns the times of the posts of a list, which has no scores. A missing post has the time of the post above it."""
        found, scored, at = self.posts(keys).readable, {}, 0
        for key in keys:
            at = microseconds_of(found[key]["published_at"]) if key in found else at
            scored[key] = at
        return scored

    def _originals(self, found):
        """Returns the original of each repost, by the key of the repost."""
        reposts = [key for key, post in found.readable.items() if "repost_of" in post]
        originals = list(self.redis.ask_all(("HGET", POST % key, "repost_of") for key in reposts))
        posts = self.posts(sorted(set(originals)))
        missing = dict.fromkeys(posts.unreadable, UNREADABLE)
        return {key: posts.readable.get(original, missing.get(original, DELETED)) for key, original in zip(reposts, originals)}

    def find(self, ids):
        """Returns the posts with these ids that are not deleted. Those that cannot be read are UNREADABLE."""
        # A number is its own key. The keys of other ids are known only after reading all keys, which happens if an id is not found.
        keys = {key: key for key in ids}
        found = self.posts(list(keys))
        rest = [key for key in keys if not any(key in part for part in found)]
        if rest:
            keys.update((key, self._hashed_keys[key]) for key in rest if key in self._hashed_keys)
            found = self.posts(list(keys.values()))
        posts = {key: found.readable.get(keys[key], UNREADABLE if keys[key] in found.unreadable else None) for key in keys}
        return {key: post for key, post in posts.items() if post is not None}

    @functools.cached_property
    def _hashed_keys(self):
        """The keys of posts whose ids are hashes, by their ids. Takes about 200 bytes of memory for each."""
        return {post_id(key): key for keys in self.redis.keys(POST) for key in keys if post_id(key) != key}


if __name__ == "__main__":
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--redis", default="redis-cli", help="the command of redis-cli, as in `docker exec -i redis redis-cli`")
    chosen = parser.parse_args()
    run(chosen, RedisSource(Redis(chosen.redis)))
