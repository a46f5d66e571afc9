#!/usr/bin/env python3
"""Shows that memory stays bounded for any number of posts, and that a feed scrolled to its end has every post.

    cargo build --release -p tidewire-server [--features cassandra]
    scripts/deep_scroll.py [--posts 2000000] [--authors 100] [--followed N] [--outbox-posts 1000] [--binary target/release/tidewire]
        [--cassandra] [--beside OTHER_BINARY]

Imports posts of some authors and one follower of all, or of the first N, into a new data directory, starts a server on it, and pages the
follower's feed from the newest post to the oldest. The exit code is 1 if a post is missing, repeated or out of order.
With `--beside`, another version does the same, and with `--cassandra`, this version with its old posts in a new Cassandra
(`scripts/cassandra.sh install`). The servers answer pages in turns, and the script prints the ratio of their times. A page that does not get its
old posts in time is read again.
Resident memory is read from /proc while each process runs.
"""

import argparse
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import archive_faults

MINUTE = 60
AGAIN_MAX = 1_000  # pages
ARCHIVED_WITHIN = 60 * MINUTE
KEPT_PER_OUTBOX = 2  # times its limit, as posts leave memory in groups
FIRST_AT = 1_600_000_000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--posts", type=int, default=2_000_000)
    parser.add_argument("--authors", type=int, default=100)
    parser.add_argument("--followed", type=int, help="number of authors that the reader follows; default: all")
    parser.add_argument("--outbox-posts", type=int, default=1_000)
    parser.add_argument("--binary", default="target/release/tidewire")
    beside = parser.add_mutually_exclusive_group()
    beside.add_argument("--cassandra", action="store_true", help="compare with the same posts in Cassandra")
    beside.add_argument("--beside", metavar="OTHER_BINARY", help="compare with another version")
    parser.add_argument("--directory", help="directory of the data, which is deleted at the end; default: the system's")
    options = parser.parse_args()
    options.followed = min(options.followed or options.authors, options.authors)
    return options


class Memory(threading.Thread):
    """The maximum resident memory of a process, in bytes."""

    def __init__(self, process):
        super().__init__(daemon=True)
        self.process, self.most = process, 0
        self.start()

    def now(self):
        try:
            with open(f"/proc/{self.process.pid}/status") as status:
                lines = [line for line in status if line.startswith("VmRSS")]
        except OSError:
            return 0
        return int(lines[0].split()[1]) * 1024 if lines else 0

    def run(self):
        while self.process.poll() is None:
            self.most = max(self.most, self.now())
            time.sleep(0.05)


def write_input(directory, posts, authors, followed):
    with open(os.path.join(directory, "follows.txt"), "w") as follows:
        follows.writelines(f"reader author{nth}\n" for nth in range(followed))
    filler = "x" * 80
    with open(os.path.join(directory, "posts.ndjson"), "w") as lines:
        for nth in range(posts):
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(FIRST_AT + nth))
            body = {"nth": nth, "text": filler}
            post = {"id": str(nth + 1), "author": f"author{nth % authors}", "published_at": at, "body": body}
            lines.write(json.dumps(post) + "\n")


def import_all(binary, directory, config):
    for what, name in [("follows", "follows.txt"), ("posts", "posts.ndjson")]:
        command = [binary, "import", what, os.path.join(directory, name), "--data-dir", os.path.join(directory, "data")]
        began = time.monotonic()
        process = subprocess.Popen([*command, "--config", config], stderr=subprocess.DEVNULL)
        memory = Memory(process)
        if process.wait() != 0:
            sys.exit(f"import {what} failed")
        print(f"import {what}: {time.monotonic() - began:.1f} s, at most {memory.most / 1e6:.0f} MB resident", flush=True)


def serve(binary, directory, config, patience=5 * MINUTE):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = os.path.join(directory, "data")
    command = [binary, "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", data, "--config", config]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    began = time.monotonic()
    while time.monotonic() - began < patience:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=MINUTE)
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            response.read()
            if response.status == 200:
                print(f"start: {time.monotonic() - began:.2f} s", flush=True)
                return process, connection
        except OSError:
            pass
        if process.poll() is not None:
            sys.exit(f"the server ended with code {process.returncode} before it was ready")
        time.sleep(0.01)
    process.kill()
    sys.exit(f"the server is not ready after {patience} s")


def await_archived(connection, kept_max):
    """Waits until memory has no more than this number of posts."""
    began, posts = time.monotonic(), kept_max + 1
    while posts > kept_max:
        if time.monotonic() - began > ARCHIVED_WITHIN:
            sys.exit(f"{posts} posts are still in memory after {ARCHIVED_WITHIN} s")
        time.sleep(0.1)
        connection.request("GET", "/v1/stats")
        posts = json.loads(connection.getresponse().read())["posts"]
    print(f"all but {posts} posts were in the archive after {time.monotonic() - began:.1f} s", flush=True)


class Scroll:
    """The feed of the reader, from its newest post to its oldest, a page at a time."""

    def __init__(self, connection, expected):
        self.connection, self.expected = connection, expected
        self.times, self.again, self.cursor = [], 0, None
        self.shown = self.wrong = 0
        self.is_over = False

    def page(self):
        """Reads the next page, and checks the number of each post."""
        query = {"limit": "100"} | ({"before": self.cursor} if self.cursor else {})
        began = time.monotonic()
        self.connection.request("GET", "/v1/users/reader/feed?" + urllib.parse.urlencode(query))
        response = self.connection.getresponse()
        text = response.read()
        self.times.append(time.monotonic() - began)
        page = json.loads(text)
        if response.status == 200 and page["partial"] and self.again < AGAIN_MAX:
            self.again += 1
            return
        if response.status != 200 or page["partial"]:
            sys.exit(f"a page was refused or is partial: {response.status} {text[:300]}")
        for item in page["items"]:
            self.take(item)
        self.cursor = page["next"]
        self.is_over = self.cursor is None

    def take(self, item):
        self.wrong += self.shown >= len(self.expected) or item["post"]["body"]["nth"] != self.expected[self.shown]
        self.shown += 1

    def is_right(self):
        return not self.wrong and self.shown == len(self.expected)

    def part(self, percent):
        """This percentile of the times of pages, in milliseconds."""
        return sorted(self.times)[len(self.times) * percent // 100] * 1e3


class Served:
    """A server on a new data directory with all posts, and the scroll through its feed."""

    def __init__(self, name, binary, directory, options, settings=()):
        self.name, self.binary, self.directory, self.process = name, binary, directory, None
        self.config = os.path.join(directory, "tidewire.toml")
        with open(self.config, "w") as file:
            file.writelines(f"{line}\n" for line in [f"outbox-posts = {options.outbox_posts}", *settings])
        print(f"{name}:", flush=True)
        write_input(directory, options.posts, options.authors, options.followed)
        import_all(binary, directory, self.config)

    def start(self, expected, kept_max):
        """Starts the server, and waits until memory has no more than this number of posts."""
        self.process, connection = serve(self.binary, self.directory, self.config)
        await_archived(connection, kept_max)
        # The server would end it while others start. The first page opens another.
        connection.close()
        self.memory = Memory(self.process)
        self.at_start = self.memory.now()
        self.scroll = Scroll(connection, expected)

    def report(self):
        scroll = self.scroll
        print(
            f"{self.name}: {len(scroll.times)} pages of 100: median {scroll.part(50):.2f} ms, p99 {scroll.part(99):.2f} ms; "
            f"{scroll.shown} posts shown, {scroll.wrong} of them in a wrong place; resident {self.at_start / 1e6:.0f} MB at the start, "
            f"{self.memory.most / 1e6:.0f} MB at most; {scroll.again} pages read again"
        )

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(MINUTE)


def read_in_turns(scrolls):
    """Scrolls through all feeds to their ends, in a different order for each page."""
    while pending := [scroll for scroll in scrolls if not scroll.is_over]:
        for scroll in pending:
            scroll.page()
        scrolls = scrolls[::-1]


def on_cassandra(options, directory, ends):
    """Starts a Cassandra, and returns a server whose old posts are there."""
    store = archive_faults.Store(os.path.join(directory, "store"), settings=archive_faults.FAST).start(ends)
    url = f"cassandra://127.0.0.1:{store.port}/feeds"
    subprocess.run([options.binary, "archive", "init", "--archive", url, "--replicas", "1"], check=True)
    return Served("Cassandra", options.binary, directory, options, [f'archive = "{url}"'])


def main():
    options = arguments()
    expected = [nth for nth in reversed(range(options.posts)) if nth % options.authors < options.followed]
    with contextlib.ExitStack() as ends:

        def directory():
            return ends.enter_context(tempfile.TemporaryDirectory(dir=options.directory))

        servers = [Served("archive.redb", options.binary, directory(), options)]
        if options.cassandra:
            servers.append(on_cassandra(options, directory(), ends))
        if options.beside:
            servers.append(Served("the other version", options.beside, directory(), options))
        # After all imports, so that the servers start under equal conditions and no connection waits.
        for server in servers:
            ends.callback(server.stop)
            server.start(expected, KEPT_PER_OUTBOX * options.authors * options.outbox_posts)
        read_in_turns([server.scroll for server in servers])
    for server in servers:
        server.report()
    first, *others = [server.scroll for server in servers]
    for other in others:
        print(f"the first beside the second: median {first.part(50) / other.part(50):.3f}, p99 {first.part(99) / other.part(99):.3f}")
    sys.exit(0 if all(server.scroll.is_right() for server in servers) else 1)


if __name__ == "__main__":
    main()
