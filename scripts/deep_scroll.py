#!/usr/bin/env python3
"""Shows that memory stays bounded however much was posted, and that a feed scrolled to its end has every post.

    cargo build --release
    scripts/deep_scroll.py [--posts 2000000] [--authors 100] [--outbox-posts 1000] [--binary target/release/tidewire]

Imports posts of a few authors and one follower of all into a fresh data directory, starts a server on it, and pages the
follower's feed from the newest post to the oldest. The exit code is 1 if a post is missing, shown twice or out of order.
Resident memory is read from /proc while each process runs.
"""

import argparse
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

MINUTE = 60
FIRST_AT = 1_600_000_000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--posts", type=int, default=2_000_000)
    parser.add_argument("--authors", type=int, default=100)
    parser.add_argument("--outbox-posts", type=int, default=1_000)
    parser.add_argument("--binary", default="target/release/tidewire")
    parser.add_argument("--directory", help="where the data goes, deleted at the end; default: the system's")
    return parser.parse_args()


class Memory(threading.Thread):
    """The most resident memory of a process, in bytes."""

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


def write_input(directory, posts, authors):
    with open(os.path.join(directory, "follows.txt"), "w") as follows:
        follows.writelines(f"reader author{nth}\n" for nth in range(authors))
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
            sys.exit(f"import {what} has failed")
        print(f"import {what}: {time.monotonic() - began:.1f} s, at most {memory.most / 1e6:.0f} MB resident", flush=True)


def serve(binary, directory, config):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = os.path.join(directory, "data")
    command = [binary, "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", data, "--config", config]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    began = time.monotonic()
    while time.monotonic() - began < 5 * MINUTE:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=MINUTE)
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            response.read()
            if response.status == 200:
                print(f"start: {time.monotonic() - began:.1f} s", flush=True)
                return process, connection
        except OSError:
            pass
        time.sleep(0.1)
    process.kill()
    sys.exit("the server did not get ready")


def scroll(connection):
    """Yields the number of each post, and puts how long each page took into `scroll.times`."""
    scroll.times, cursor = [], None
    while True:
        query = {"limit": "100"} | ({"before": cursor} if cursor else {})
        began = time.monotonic()
        connection.request("GET", "/v1/users/reader/feed?" + urllib.parse.urlencode(query))
        response = connection.getresponse()
        text = response.read()
        scroll.times.append(time.monotonic() - began)
        page = json.loads(text)
        if response.status != 200 or page["partial"]:
            sys.exit(f"a page was refused or is not whole: {response.status} {text[:300]}")
        yield from (item["post"]["body"]["nth"] for item in page["items"])
        cursor = page["next"]
        if cursor is None:
            return


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        config = os.path.join(directory, "tidewire.toml")
        with open(config, "w") as file:
            file.write(f"outbox-posts = {options.outbox_posts}\n")
        write_input(directory, options.posts, options.authors)
        import_all(options.binary, directory, config)
        process, connection = serve(options.binary, directory, config)
        try:
            memory = Memory(process)
            at_start = memory.now()
            shown = wrong = 0
            for number in scroll(connection):
                shown += 1
                wrong += number != options.posts - shown
            pages, times = len(scroll.times), sorted(scroll.times)
            print(
                f"{pages} pages of 100: median {times[pages // 2] * 1e3:.2f} ms, p99 {times[pages * 99 // 100] * 1e3:.2f} ms; "
                f"{shown} posts shown, {wrong} of them not where they belong; resident {at_start / 1e6:.0f} MB at the start, "
                f"{memory.most / 1e6:.0f} MB at most"
            )
        finally:
            process.terminate()
            process.wait(MINUTE)
    sys.exit(1 if wrong or shown != options.posts else 0)


if __name__ == "__main__":
    main()
