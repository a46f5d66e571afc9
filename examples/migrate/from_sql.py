#!/usr/bin/env python3
"""Moves feeds from SQL tables to Tidewire, and compares them.

    python3 examples/migrate/from_sql.py import --sql "mariadb shop"
    python3 examples/migrate/from_sql.py compare --sql "mariadb shop"

It reads with the command-line client of MariaDB or MySQL, which has the options of the connection. It needs no other packages. Adapt
the queries below: each returns one JSON document per row. docs/migrate-from-sql.md is the guide, also for PostgreSQL.
"""

import json
import pathlib
import shlex
import subprocess
import sys

from api import ids_of, microseconds_of, post_id
from commands import arguments, run
from compare import OldFeed

# A post as POST /v1/posts accepts it. Times are in UTC.
POST = """JSON_OBJECT(
    'id', CAST(p.id AS CHAR), 'author', p.author, 'published_at', DATE_FORMAT(p.created_at, '%Y-%m-%dT%H:%i:%s.%fZ'),
    'body', JSON_OBJECT('text', p.text), 'reply_to', CAST(p.reply_to AS CHAR), 'repost_of', CAST(p.repost_of AS CHAR))"""

# Rows after a place, in the order of a key, so that no query reads a large table at once. At the start, {first} is NULL.
POSTS = f"""SELECT JSON_OBJECT('place', JSON_ARRAY(CAST(p.id AS CHAR)), 'deleted', p.deleted_at IS NOT NULL, 'post', {POST})
    FROM posts p WHERE {{first}} IS NULL OR p.id > {{first}} ORDER BY p.id LIMIT {{limit}}"""
FOLLOWS = """SELECT JSON_OBJECT('place', JSON_ARRAY(follower, followee))
    FROM follows WHERE {first} IS NULL OR follower > {first} OR (follower = {first} AND followee > {second})
    ORDER BY follower, followee LIMIT {limit}"""
MUTES = """SELECT JSON_OBJECT('place', JSON_ARRAY(user, muted))
    FROM mutes WHERE {first} IS NULL OR user > {first} OR (user = {first} AND muted > {second})
    ORDER BY user, muted LIMIT {limit}"""
# All users, or at least those with follows or posts. If you have a table of users, read that.
READERS = """SELECT JSON_OBJECT('place', JSON_ARRAY(name)) FROM (
        (SELECT follower AS name FROM follows
            WHERE {first} IS NULL OR follower > {first} GROUP BY follower ORDER BY follower LIMIT {limit})
        UNION (SELECT author FROM posts WHERE {first} IS NULL OR author > {first} GROUP BY author ORDER BY author LIMIT {limit})
    ) people ORDER BY name LIMIT {limit}"""
MUTED = "SELECT JSON_QUOTE(muted) FROM mutes WHERE user = {reader}"
FOLLOWING = "SELECT JSON_QUOTE(followee) FROM follows WHERE follower = {reader}"
# The feed as the old application reads it. The columns of the original are null unless the post is a repost.
FEED = f"""SELECT JSON_OBJECT('post', {POST}, 'original', {POST.replace('p.', 'o.')})
    FROM posts p LEFT JOIN posts o ON o.id = p.repost_of
    WHERE (p.author = {{reader}} OR p.author IN (SELECT followee FROM follows WHERE follower = {{reader}}))
        AND p.author NOT IN (SELECT muted FROM mutes WHERE user = {{reader}})
        AND (o.author IS NULL OR o.author NOT IN (SELECT muted FROM mutes WHERE user = {{reader}}))
        AND p.deleted_at IS NULL AND o.deleted_at IS NULL
    ORDER BY p.created_at DESC, p.id DESC LIMIT {{limit}}"""

# Before each query: shows columns of type TIMESTAMP in UTC too.
BEFORE = "SET time_zone = '+00:00';"
# Prints plain rows, without the frame and the escapes of a table.
OPTIONS = ["--batch", "--raw", "--skip-column-names", "--default-character-set=utf8mb4"]

ROWS = 5_000


def literal(value):
    """Returns a value as SQL text."""
    return "NULL" if value is None else "'" + str(value).replace("\\", "\\\\").replace("'", "''") + "'"


class SqlSource:
    """The old database."""

    # The query returns the whole feed, so any other entry in Tidewire is a difference.
    shows_all = True

    def __init__(self, command, place, server, from_start):
        """`place` is the file to resume from, for this server and database only; with `from_start` it is not read."""
        self.command = [*shlex.split(command), *OPTIONS]
        self.place, self.from_start = place, from_start
        self.belongs_to = {"server": server, "sql": command}

    def query(self, sql, limit=ROWS, **values):
        """Returns the documents of all rows."""
        sql = sql.format(limit=limit, **{name: literal(value) for name, value in values.items()})
        try:
            done = subprocess.run(self.command, input=f"{BEFORE}\n{sql};\n".encode(), stdout=subprocess.PIPE)
        except OSError as cause:
            sys.exit(f"--sql {' '.join(self.command)!r} cannot be run: {cause}")
        if done.returncode:
            sys.exit(f"{self.command[0]} ended with {done.returncode}, asked for: {' '.join(sql.split())}")
        return [document(line, sql) for line in done.stdout.decode().split("\n") if line]

    def pages(self, sql, after=()):
        """Yields the rows of all pages after a place."""
        while True:
            first, second, *_ = [*after, None, None]
            rows = self.query(sql, first=first, second=second)
            if not rows:
                return
            yield rows
            after = rows[-1]["place"]

    def copy_to(self, target):
        """Copies the rows after the stored place, and stores the place after each page, so that an interrupted run continues there."""
        place = {} if self.from_start else self._stored()
        target.is_resumed = bool(place)
        target.counts["refused"] += place.get("refused", 0)
        copies = [
            ("follows", FOLLOWS, lambda rows: target.follow(row["place"] for row in rows)),
            ("mutes", MUTES, lambda rows: target.mute(row["place"] for row in rows)),
            ("posts", POSTS, lambda rows: self._copy_posts(rows, target)),
        ]
        names = [name for name, _, _ in copies]
        begin = names.index(place["copying"]) if place else 0
        for nth, (name, sql, copy) in enumerate(copies[begin:]):
            for rows in self.pages(sql, place.get("after", ()) if nth == 0 else ()):
                copy(rows)
                self._store({"copying": name, "after": rows[-1]["place"], "refused": target.counts["refused"]})
        self.place.unlink(missing_ok=True)

    def _stored(self):
        """Returns the place where an import was interrupted, if there is one. Exits if that was another import."""
        place = json.loads(self.place.read_text()) if self.place.exists() else {}
        for name, mine in self.belongs_to.items():
            if place and place.get(name) != mine:
                sys.exit(
                    f"{self.place} is of an interrupted import with --{name} {place.get(name)!r}, not {mine!r}: go on with that one, remove the "
                    "file, or choose another one by --place"
                )
        return place

    def _store(self, place):
        """Replaces the file as a whole, so that a crash leaves the old place or the new one."""
        new = self.place.with_name(self.place.name + ".new")
        new.write_text(json.dumps({**self.belongs_to, **place}))
        new.replace(self.place)

    def _copy_posts(self, rows, target):
        target.publish(cleaned(row["post"]) for row in rows if not row["deleted"])
        target.delete([post_id(row["post"]["id"]) for row in rows if row["deleted"]])

    def readers(self):
        for rows in self.pages(READERS):
            yield from (row["place"][0] for row in rows)

    def following(self, user):
        return set(self.query(FOLLOWING, reader=user)) - {user}

    def muted(self, user):
        return set(self.query(MUTED, reader=user)) - {user}

    def live_ids(self):
        for rows in self.pages(POSTS):
            yield from (post_id(row["post"]["id"]) for row in rows if not row["deleted"])

    def feed(self, reader, depth, counts):
        shown = []
        for row in self.query(FEED, reader=reader, limit=depth):
            post, original = cleaned(row["post"]), row["original"]
            original = cleaned(original) if original["id"] is not None else None
            shown.append((post, original, microseconds_of(post["published_at"])))
        return OldFeed(shown, shown[-1][2] if len(shown) == depth else None)


def document(line, sql):
    try:
        return json.loads(line)
    except ValueError:
        sys.exit(f"a row is not a JSON document: {line[:200]!r}, asked for: {' '.join(sql.split())}")


def cleaned(post):
    """Returns a post without columns that are null, with ids that Tidewire accepts."""
    post = {name: value for name, value in post.items() if value is not None}
    named = {name: post_id(value) if name in ("reply_to", "repost_of") else value for name, value in post.items()}
    return {**named, **ids_of(post["id"])}


if __name__ == "__main__":
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--sql", default="mariadb", help="the client and the database, as in `docker exec -i db mariadb shop`")
    parser.add_argument("--place", type=pathlib.Path, default=pathlib.Path("from_sql.place"), help="the file to resume from, unless with --prune")
    chosen = parser.parse_args()
    run(chosen, SqlSource(chosen.sql, chosen.place, chosen.server, chosen.prune))
