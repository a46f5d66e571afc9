#!/usr/bin/env python3
"""Measures the time from the start of a server until it is ready, with posts of many authors in memory and in the archive.

    cargo build --release -p tidewire-server --features cassandra
    scripts/start_times.py [--authors 1000000] [--times 5] [--cassandra] [--binary target/release/tidewire]

Each author has one follower and three posts, of which the last is in memory. The archive is `archive.redb`. With `--cassandra`, it is also copied into
a new Cassandra (`scripts/cassandra.sh install`), and servers on both start in turns. Each stops as soon as it is
ready. The script prints the median, the range, and the maximum resident memory of each.
"""

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import archive_faults
import deep_scroll

POSTS_EACH = 3
READERS = 1_000
PATIENCE = 3_600  # seconds


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--authors", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=5, help="number of starts of each server")
    parser.add_argument("--cassandra", action="store_true", help="compare with the same posts in Cassandra")
    parser.add_argument("--binary", default="target/release/tidewire")
    parser.add_argument("--directory", help="directory of the data, which is deleted at the end; default: the system's")
    return parser.parse_args()


def write_input(directory, authors):
    with open(os.path.join(directory, "follows.txt"), "w") as follows:
        follows.writelines(f"reader{nth % READERS} author{nth}\n" for nth in range(authors))
    with open(os.path.join(directory, "posts.ndjson"), "w") as posts:
        for _ in range(POSTS_EACH):
            posts.writelines(f'{{"author": "author{nth}", "body": {{"text": "{"x" * 60}"}}}}\n' for nth in range(authors))


class Servers:
    """Servers on a data directory, one after the other."""

    def __init__(self, name, directory, binary, settings):
        self.name, self.directory, self.binary = name, directory, binary
        self.data, self.config = os.path.join(directory, "data"), os.path.join(directory, "tidewire.toml")
        with open(self.config, "w") as file:
            file.write("".join(f"{line}\n" for line in ["outbox-posts = 1", *settings]))
        self.starts, self.memory = [], []

    def run(self, kept_max=None):
        """Starts a server, and stops it when it is ready. Returns the seconds until then, and the maximum resident bytes.

        With `kept_max`, it stops when memory has no more than this number of posts, and takes a snapshot first.
        """
        began = time.monotonic()
        process, connection = deep_scroll.serve(self.binary, self.directory, self.config, PATIENCE)
        seconds = time.monotonic() - began
        with open(f"/proc/{process.pid}/status") as status:
            resident = [int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")]
        try:
            if kept_max:
                deep_scroll.await_archived(connection, kept_max)
                connection.request("POST", "/v1/snapshots")
                if (status := connection.getresponse().status) != 201:
                    sys.exit(f"the snapshot failed with status {status}")
        finally:
            connection.close()
            process.terminate()
            process.wait()
        return seconds, *resident

    def measure(self):
        seconds, resident = self.run()
        self.starts.append(seconds)
        self.memory.append(resident)

    def report(self):
        print(
            f"{self.name}: ready after {statistics.median(self.starts):.2f} s ({min(self.starts):.2f} to {max(self.starts):.2f}), "
            f"at most {statistics.median(self.memory) / 1e6:.0f} MB resident"
        )


def copied_to_cassandra(servers, options, ends):
    """Copies the archive into a Cassandra, and returns servers on it with a snapshot that has the counts of its outboxes."""
    directory = ends.enter_context(tempfile.TemporaryDirectory(dir=options.directory))
    store = archive_faults.Store(os.path.join(directory, "store"), settings=archive_faults.FAST)
    store.start(ends)
    url = f"cassandra://127.0.0.1:{store.port}/feeds"
    data = os.path.join(directory, "data")
    shutil.copytree(servers.data, data)
    subprocess.run([options.binary, "archive", "init", "--archive", url, "--replicas", "1"], check=True)
    began = time.monotonic()
    subprocess.run([options.binary, "archive", "copy", "--from", data, "--to", url], check=True)
    print(f"copied and compared in {time.monotonic() - began:.0f} s", flush=True)
    for file in ["archive.redb", "archive.sums"]:
        os.remove(os.path.join(data, file))
    on_cassandra = Servers("Cassandra", directory, options.binary, [f'archive = "{url}"'])
    seconds, _ = on_cassandra.run(kept_max=options.authors)
    print(f"the first start, which lists all outboxes: {seconds:.0f} s", flush=True)
    return on_cassandra


def main():
    options = arguments()
    with contextlib.ExitStack() as ends:
        directory = ends.enter_context(tempfile.TemporaryDirectory(dir=options.directory))
        measured = [Servers("archive.redb", directory, options.binary, [])]
        write_input(directory, options.authors)
        deep_scroll.import_all(options.binary, directory, measured[0].config)
        measured[0].run(kept_max=options.authors)
        if options.cassandra:
            measured.append(copied_to_cassandra(measured[0], options, ends))
        for _ in range(options.times):
            for servers in measured:
                servers.measure()
        for servers in measured:
            servers.report()


if __name__ == "__main__":
    sys.exit(main())
