#!/usr/bin/env python3
r"""Keeps a table of another system up to date with all changes that Tidewire accepts: here, the uses of each tag, in SQLite.

    cargo build --release
    cargo run --release -- serve &                        # http://127.0.0.1:8080, data in ./snapshots
    python3 -m venv venv && venv/bin/pip install ./clients/python
    venv/bin/python examples/tag_counts.py &

    curl -X POST localhost:8080/v1/posts -H 'Content-Type: application/json' \
         -d '{"author":"bob","body":{"text":"hello"},"tags":["tea"]}'

It prints the tags whenever they change. It stores its place in the stream in the same transaction as the effect of a change, so each post counts
once, even if this program or the server is killed. If it was away for so long that the server no longer has the next change, it
counts all posts again. Hidden posts count too. TIDEWIRE_SERVER and TIDEWIRE_KEY name another server and its key, TAGS another file than tags.sqlite.

With an archive across a network (Cassandra), a server lists only the posts that it still has in memory, and says so. Then this program cannot
count again: it ends with exit code 1, and keeps the old counts and the old place (docs/changes.md, "Begin again").
"""

import os
import sqlite3
import sys

from tidewire import DeletedChange, ErasedChange, Gone, Post, PublishedChange, Tidewire

TABLES = """
CREATE TABLE IF NOT EXISTS posts (id TEXT, author TEXT, tag TEXT, PRIMARY KEY (id, tag));
CREATE TABLE IF NOT EXISTS place (one INTEGER PRIMARY KEY CHECK (one = 1), sequence INTEGER NOT NULL);
INSERT OR IGNORE INTO place VALUES (1, 0);
"""


def put(tags: sqlite3.Connection, post: Post) -> bool:
    """Writes the tags of a post. Returns true if that changes something."""
    rows = [(post.id, post.author, tag) for tag in post.tags]
    return tags.executemany("INSERT OR IGNORE INTO posts VALUES (?, ?, ?)", rows).rowcount > 0


def apply(tags: sqlite3.Connection, change: object) -> bool:
    """Writes the effect of a change. Returns true if it has one."""
    match change:
        case PublishedChange(post=post):
            return put(tags, post)
        case DeletedChange(id=id):
            return tags.execute("DELETE FROM posts WHERE id = ?", (id,)).rowcount > 0
        case ErasedChange(user=user):
            return tags.execute("DELETE FROM posts WHERE author = ?", (user,)).rowcount > 0
    return False


class NotListed(Exception):
    """The server does not list all of its posts."""


def rebuild(tags: sqlite3.Connection, tidewire: Tidewire) -> None:
    """Replaces the posts of the table, which lacks changes, with all posts of the server, and stores the place to continue from.

    Raises NotListed if the server lists only some of them; then nothing changes.
    """
    # One transaction: the old posts and the old place stay until all pages are read.
    with tags:
        tags.execute("DELETE FROM posts")
        places: list[int] = []
        after: str | None = None
        while not places or after is not None:
            page = tidewire.list_posts(after=after, limit=1000)
            if not page.complete:
                raise NotListed
            for post in page.posts:
                put(tags, post)
            if page.unreadable:
                print(f"damaged in the archive, not counted: {', '.join(page.unreadable)}", file=sys.stderr, flush=True)
            places.append(page.sequence)
            after = page.next
        tags.execute("UPDATE place SET sequence = ?", (min(places),))


def show(tags: sqlite3.Connection) -> None:
    """Prints the most used tags."""
    most = tags.execute("SELECT tag, count(*) FROM posts GROUP BY tag ORDER BY 2 DESC, 1 LIMIT 5")
    print(", ".join(f"{tag} {count}" for tag, count in most) or "no tags", flush=True)


def follow(tags: sqlite3.Connection, tidewire: Tidewire) -> None:
    """Applies all changes after the stored place. Each has its own transaction, which its first write begins."""
    (after,) = tags.execute("SELECT sequence FROM place").fetchone()
    for change in tidewire.changes(after=after, types=["published", "deleted", "erased"]):
        with tags:
            is_changed = apply(tags, change)
            tags.execute("UPDATE place SET sequence = ?", (change.sequence,))
        if is_changed:
            show(tags)


def main() -> None:
    tags = sqlite3.connect(os.environ.get("TAGS", "tags.sqlite"))
    tags.executescript(TABLES)
    url = os.environ.get("TIDEWIRE_SERVER", "http://127.0.0.1:8080")
    with Tidewire(url, token=os.environ.get("TIDEWIRE_KEY")) as tidewire:
        while True:
            try:
                follow(tags, tidewire)
            except Gone:
                # The journal starts later: the table may lack deletions in between (docs/changes.md, "Begin again").
                try:
                    rebuild(tags, tidewire)
                except NotListed:
                    sys.exit(
                        f"{url} no longer has the next changes, and lists only some of its posts, because its archive does not list the "
                        "others. The old counts stay, but lack posts: count the posts of your own database, or those of each user "
                        "(GET /v1/users/{user}/posts)"
                    )
                show(tags)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
