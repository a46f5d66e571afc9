#!/usr/bin/env python3
"""Kills a server under load repeatedly, and checks that no acknowledged write is lost and no post is shown twice.

    cargo build --release
    scripts/kill_loop.py [--rounds 200] [--binary target/release/tidewire] [--durability always] [--seed 1]

Each round starts the server on the same data directory, lets clients publish, delete, edit, hide, unhide, follow and
unfollow for a moment while snapshots are taken, and kills it with SIGKILL at a random instant. Few posts stay in memory, and
some changed posts are old, so the archive is involved. After the restart, every acknowledged operation must have
its effect; a pending one may or may not have it. A round with too few acknowledged writes does not count. At the end, the
feeds of 200 readers and the pages of all tags are compared with a naive computation. The exit code is 1 if anything
differs.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

WORKERS = 8
USERS_PER_WORKER = 40
READERS_CHECKED = 200
TAGS = ["tea", "rust", "music", "sea", "rare"]


class Api:
    """One connection to the server."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

    def call(self, method, path, document=None):
        body = None if document is None else json.dumps(document)
        headers = {} if body is None else {"Content-Type": "application/json"}
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None


class Post:
    """A post as it was acknowledged."""

    def __init__(self, author, tags, body, published_at):
        self.author, self.tags, self.body, self.published_at = author, tags, body, published_at
        self.hidden = False

    def sources(self):
        return {self.author} | {f"tag:{tag}" for tag in self.tags}

    def is_shown_as(self, answer):
        shown = [answer.get(key, none) for key, none in [("author", ""), ("tags", []), ("body", ""), ("hidden", False)]]
        return shown == [self.author, self.tags, self.body, self.hidden] and answer["published_at"] == self.published_at


class Worker:
    """A client with its own users: no other client publishes as them or changes their follows."""

    def __init__(self, number, seed):
        self.number = number
        self.random = random.Random(seed * 1000 + number)
        self.users = [f"w{number}u{user}" for user in range(USERS_PER_WORKER)]
        self.posts = {}  # id -> Post, or None once deleted
        self.ids = []  # oldest first
        self.edges = set()
        self.touched = set()  # posts and followers to check after the restart
        self.pending = None
        self.answered = 0
        self.problems = []

    def choose(self):
        user = self.random.choice(self.users)
        kind = self.random.random()
        post = self.some_post()
        mine = [edge for edge in self.edges if edge[0] == user]
        if kind < 0.5 or post is None or (kind >= 0.92 and not mine):
            return self.publish(user)
        if kind < 0.57:
            return "delete", post
        if kind < 0.66:
            return "edit", post, f"edited {self.random.random()}"
        if kind < 0.76:
            return "hide", post, not self.posts[post].hidden
        if kind < 0.92:
            return "follow", user, self.some_source(user)
        return ("unfollow", *self.random.choice(mine))

    def publish(self, author):
        # A few authors publish most posts, so that the archive soon has most of these.
        if self.random.random() < 0.7:
            author = self.random.choice(self.users[:3])
        tags = self.random.sample(TAGS, self.random.randint(1, 2)) if self.random.random() < 1 / 3 else []
        return "publish", author, str(self.number * 10**12 + len(self.ids) + 1), f"{self.random.random()}", tags

    def some_post(self):
        """One of the newest posts, or any earlier one: most of these are in the archive."""
        among = self.ids if self.random.random() < 0.4 else self.ids[-50:]
        found = (self.random.choice(among) for _ in range(20)) if among else ()
        return next((post for post in found if self.posts[post]), None)

    def some_source(self, user):
        if self.random.random() < 0.15:
            return f"tag:{self.random.choice(TAGS)}"
        other = f"w{self.random.randrange(WORKERS)}u{self.random.randrange(USERS_PER_WORKER)}"
        return other if other != user else self.users[0] if user != self.users[0] else self.users[1]

    def send(self, api, operation):
        match operation:
            case ("publish", author, post, body, tags):
                document = {"id": post, "author": author, "body": body, "tags": tags}
                if self.random.random() < 0.2:
                    document["published_at"] = f"2026-01-0{self.random.randint(1, 9)}T00:00:00Z"
                return api.call("POST", "/v1/posts", document)
            case ("delete", post):
                return api.call("DELETE", f"/v1/posts/{post}")
            case ("edit", post, body):
                return api.call("PATCH", f"/v1/posts/{post}", {"body": body})
            case ("hide", post, hidden):
                return api.call("PATCH", f"/v1/posts/{post}", {"hidden": hidden})
            case ("follow", follower, source):
                return api.call("PUT", f"/v1/users/{follower}/following/{source}")
            case ("unfollow", follower, source):
                return api.call("DELETE", f"/v1/users/{follower}/following/{source}")

    def note(self, operation, published_at=None):
        match operation:
            case ("publish", author, post, body, tags):
                self.posts[post] = Post(author, tags, body, published_at)
                self.ids.append(post)
            case ("delete", post):
                self.posts[post] = None
            case ("edit", post, body):
                self.posts[post].body = body
            case ("hide", post, hidden):
                self.posts[post].hidden = hidden
            case ("follow", follower, source):
                self.edges.add((follower, source))
            case ("unfollow", follower, source):
                self.edges.discard((follower, source))
        self.touched.add(operation[2] if operation[0] == "publish" else operation[1])

    def work(self, port):
        try:
            api = Api(port)
            while True:
                self.pending = self.choose()
                status, answer = self.send(api, self.pending)
                if status >= 300:
                    self.problems.append(f"{self.pending} was refused: {status} {answer}")
                    return
                self.note(self.pending, answer and answer.get("published_at"))
                self.pending = None
                self.answered += 1
                if self.random.random() < 0.1:
                    reader = self.random.choice(self.users)
                    api.call("GET", f"/v1/users/{reader}/feed")
        except (OSError, http.client.HTTPException, ValueError):
            return  # the server was killed

    def settle(self, api):
        """Checks whether the pending operation has taken effect."""
        operation, self.pending = self.pending, None
        if operation is None:
            return
        match operation:
            case ("publish", _, post, _, _) | ("delete", post):
                status, answer = api.call("GET", f"/v1/posts/{post}")
                if (status == 200) == (operation[0] == "publish"):
                    self.note(operation, answer and answer.get("published_at"))
            case ("edit", post, body):
                _, answer = api.call("GET", f"/v1/posts/{post}")
                if answer.get("body") == body:
                    self.note(operation)
            case ("hide", post, hidden):
                _, answer = api.call("GET", f"/v1/posts/{post}")
                if answer.get("hidden", False) == hidden:
                    self.note(operation)
            case ("follow" | "unfollow", follower, source):
                if (source in following(api, follower)) == (operation[0] == "follow"):
                    self.note(operation)

    def check(self, api, everything):
        """Compares the server with the acknowledged writes."""
        names = set(self.posts) | set(self.users) if everything else self.touched
        for name in names:
            if name in self.users:
                expected = {source for follower, source in self.edges if follower == name}
                listed = following(api, name)
                if sorted(listed) != sorted(expected):
                    self.problems.append(f"{name} follows {sorted(listed)}, not {sorted(expected)}")
                continue
            status, answer = api.call("GET", f"/v1/posts/{name}")
            post = self.posts[name]
            if post is None and status != 404:
                self.problems.append(f"deleted post {name} is back: {status}")
            elif post and (status != 200 or not post.is_shown_as(answer)):
                self.problems.append(f"post {name} should be {vars(post)}: {status} {answer}")
        self.touched = set()


def paged(api, path):
    cursor = ""
    while True:
        status, page = api.call("GET", f"{path}?limit=100{cursor}")
        assert status == 200, (path, status, page)
        yield from page["items"]
        if page["next"] is None:
            return
        cursor = f"&{'before' if 'newest' in page else 'cursor'}={page['next']}"


def following(api, follower):
    return [item["id"] for item in paged(api, f"/v1/users/{follower}/following")]


def start(args, directory):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = ["--data-dir", directory, "--durability", args.durability, "--snapshot-journal-bytes", "300000"]
    flags += ["--outbox-posts", str(args.outbox_posts), "--celebrity-followers", "60", "--listen", f"127.0.0.1:{port}", *args.flags.split()]
    server = subprocess.Popen([args.binary, "serve", *flags], stderr=open(args.log, "a"))
    began = time.monotonic()
    while True:
        try:
            if Api(port).call("GET", "/readyz")[0] == 200:
                return server, port, time.monotonic() - began
        except OSError:
            pass
        if server.poll() is not None or time.monotonic() - began > 60:
            sys.exit(f"the server did not start; see {args.log}")
        time.sleep(0.005)


def load(workers, server, port, rng):
    """Lets the workers work for a moment, sometimes with a snapshot meanwhile, and kills the server."""
    before = sum(worker.answered for worker in workers)
    threads = [threading.Thread(target=worker.work, args=(port,)) for worker in workers]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    moment = rng.uniform(0.15, 0.9)
    if rng.random() < 0.5:
        time.sleep(moment * rng.random())
        asking = threading.Thread(target=ask_for_snapshot, args=(port,))
        asking.start()
        threads.append(asking)
    time.sleep(max(0, moment - (time.monotonic() - began)))
    server.send_signal(signal.SIGKILL)
    server.wait()
    took = time.monotonic() - began
    for thread in threads:
        thread.join()
    return sum(worker.answered for worker in workers) - before, took


def ask_for_snapshot(port):
    try:
        Api(port).call("POST", "/v1/snapshots")
    except (OSError, http.client.HTTPException, ValueError):
        pass


def check_feeds(api, workers, rng):
    """Compares the whole feeds of some readers and the pages of all tags with a naive computation."""
    edges = set().union(*(worker.edges for worker in workers))
    posts = [(key(post.published_at), int(number), post) for worker in workers for number, post in worker.posts.items() if post]
    posts = sorted((post for post in posts if not post[2].hidden), key=lambda post: post[:2], reverse=True)
    readers = rng.sample([user for worker in workers for user in worker.users], READERS_CHECKED)
    pages = [(f"{user}/feed", {source for follower, source in edges if follower == user} | {user}) for user in readers]
    pages += [(f"tag:{tag}/posts", {f"tag:{tag}"}) for tag in TAGS]
    problems = []
    for page, sources in pages:
        expected = [str(number) for _, number, post in posts if not sources.isdisjoint(post.sources())]
        shown = [item["post"]["id"] for item in paged(api, f"/v1/users/{page}")]
        if shown != expected:
            lacks, adds = set(expected) - set(shown), set(shown) - set(expected)
            what = f"{len(shown)} posts, not {len(expected)}; lacks {sorted(lacks)[:5]}, adds {sorted(adds)[:5]}"
            problems.append(f"{page} has {what}" + ("" if lacks or adds else ", or in another order"))
    return problems


def key(at):
    """Times have up to six decimals, and none when whole: as numbers they sort by time."""
    whole, _, fraction = at.rstrip("Z").partition(".")
    return whole, fraction.ljust(6, "0")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--binary", default="target/release/tidewire")
    parser.add_argument("--durability", default="always", choices=["always", "everysec", "no"])
    parser.add_argument("--outbox-posts", type=int, default=10, help="posts of one source in memory; others are archived")
    parser.add_argument("--writes-per-second", type=int, default=200, help="minimum rate of acknowledged writes for a round to count")
    parser.add_argument("--flags", default="", help="additional flags for the server, in one argument")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="tidewire-kill-")
    args.log = os.path.join(directory, "server.log")
    data = os.path.join(directory, "data")
    rng = random.Random(args.seed)
    workers = [Worker(number, args.seed) for number in range(WORKERS)]
    counted = void = answered = 0
    starts, problems = [], []
    while counted < args.rounds and not problems:
        server, port, took = start(args, data)
        starts.append(took)
        api = Api(port)
        for worker in workers:
            worker.settle(api)
            worker.check(api, everything=False)
        writes, seconds = load(workers, server, port, rng)
        answered += writes
        if writes / seconds < args.writes_per_second:
            void += 1
        else:
            counted += 1
        problems = [problem for worker in workers for problem in worker.problems]
        if void > args.rounds:
            problems.append("too few writes were answered in most rounds")
        if sys.stderr.isatty():
            print(f"\r{counted}/{args.rounds} rounds, {answered} writes answered", end="", file=sys.stderr)
    server, port, took = start(args, data)
    api = Api(port)
    for worker in workers:
        worker.settle(api)
        worker.check(api, everything=True)
    problems += [problem for worker in workers for problem in worker.problems]
    problems += check_feeds(api, workers, rng)
    snapshots = api.call("GET", "/v1/stats")[1]["snapshots"]
    server.send_signal(signal.SIGTERM)
    server.wait()
    posts = sum(len(worker.posts) for worker in workers)
    edges = sum(len(worker.edges) for worker in workers)
    print(f"{counted} kills that count, {void} that do not, {answered} writes answered, {posts} posts, {edges} edges")
    print(f"restart to ready: median {sorted(starts)[len(starts) // 2] * 1000:.0f} ms, most {max(starts) * 1000:.0f} ms")
    print(f"snapshots at the end: {len(snapshots)}; {READERS_CHECKED} feeds and {len(TAGS)} tags compared; problems: {len(problems)}")
    for problem in problems[:20]:
        print(" ", problem)
    if problems:
        sys.exit(f"the data directory is {data}")
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
