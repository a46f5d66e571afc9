#!/usr/bin/env python3
"""Kills `tidewire archive copy` repeatedly, to Cassandra and back, and checks that the copies are complete and identical.

    cargo build --release -p tidewire-server --features cassandra
    scripts/cassandra.sh install
    scripts/copy_kills.py [--posts 2000000] [--kills 10] [--binary target/release/tidewire]

Imports posts and reposts, edits and deletes some of them, and copies the archive to a new Cassandra: first without interruption, then into
another keyspace with kills at progress points that are spread over the first copy, the last one during its comparison. All runs together
must write hardly more than the first copy. The copy is then copied back into a new data directory, with some kills, too. Independently of
the comparison by the command itself, the exports of both directories must be equal, and servers on both directories and on Cassandra must
show one reader of all authors all posts, edited, deleted and reposted as expected, with equal entries. The exit code is 1 if anything
differs.
"""

import argparse
import concurrent.futures
import contextlib
import filecmp
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing

import archive_faults
import deep_scroll
import start_times

CLIENTS = 4
# The authors that some more users follow. Their posts are pulled.
CELEBRITIES_EACH = 10
REPOSTS_EACH, REPOSTED_BEFORE = 20, 7
CHANGES_EACH = 400
# Posts, an original, and a repost.
EDITED, DELETED = {40, 111}, {3, 27, 60}
SAMPLE_SECONDS = 0.1
# Writes of an interrupted copy, of those of another one. What was being written during a kill may be written again.
WRITES_MAX = 1.1
PATIENCE = 600  # seconds


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--posts", type=int, default=2_000_000)
    parser.add_argument("--authors", type=int, default=100)
    parser.add_argument("--kills", type=int, default=10, help="number of kills of the copy to Cassandra; there are a third, at least two, on the way back")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--binary", default="target/release/tidewire")
    parser.add_argument("--directory", help="directory of the data, which is deleted at the end; default: the system's")
    return parser.parse_args()


def is_repost(nth):
    return nth % REPOSTS_EACH == REPOSTED_BEFORE


def is_deleted(nth):
    return nth % CHANGES_EACH in DELETED


def is_edited(nth):
    return nth % CHANGES_EACH in EDITED


def body(nth, edited):
    return {"nth": nth, "text": "edited" if edited else "x" * 80}


def expected_feed(posts):
    """The numbers of the posts that a reader of all authors sees, newest first. A repost shows its original at its own place."""
    for nth in reversed(range(posts)):
        original, repost = nth - REPOSTED_BEFORE, nth + REPOSTED_BEFORE
        if is_deleted(nth):
            continue
        if is_repost(nth):
            if not is_deleted(original):
                yield original
        elif repost >= posts or not is_repost(repost) or is_deleted(repost):
            yield nth


def write_input(directory, posts, authors):
    with open(os.path.join(directory, "follows.txt"), "w") as follows:
        follows.writelines(f"reader author{nth}\n" for nth in range(authors))
        follows.writelines(f"fan{fan} author{nth}\n" for nth in range(0, authors, CELEBRITIES_EACH) for fan in range(3))
    with open(os.path.join(directory, "posts.ndjson"), "w") as lines:
        for nth in range(posts):
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(deep_scroll.FIRST_AT + nth))
            post = {"id": str(nth + 1), "author": f"author{nth % authors}", "published_at": at, "body": body(nth, False)}
            if is_repost(nth):
                post["repost_of"] = str(nth + 1 - REPOSTED_BEFORE)
            lines.write(json.dumps(post) + "\n")


def change(port, numbers):
    """Edits and deletes posts."""
    api = archive_faults.Api(port)
    for nth in numbers:
        path = f"/v1/posts/{nth + 1}"
        began = time.monotonic()
        while True:
            status, answer = api.call("DELETE", path) if is_deleted(nth) else api.call("PATCH", path, {"body": body(nth, True)})
            if status != 503 or time.monotonic() - began > PATIENCE:
                break
            time.sleep(0.1)
        if status not in (200, 204):
            sys.exit(f"post {nth + 1} was not changed: {status} {answer}")


def create_source(options, directory):
    """Creates the data directory whose archive is copied."""
    source = start_times.Servers("source", directory, options.binary, ["celebrity-followers = 2"])
    write_input(directory, options.posts, options.authors)
    deep_scroll.import_all(options.binary, directory, source.config)
    process, connection = deep_scroll.serve(options.binary, directory, source.config, PATIENCE)
    try:
        changed = [nth for nth in range(options.posts) if is_deleted(nth) or is_edited(nth)]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            parts = [pool.submit(change, connection.port, changed[part::CLIENTS]) for part in range(CLIENTS)]
        for part in parts:
            part.result()
    finally:
        connection.close()
        process.terminate()
        process.wait()
    # The snapshot makes all changes leave memory. A post of each author stays, and an original may stay for its repost.
    source.run(kept_max=10 * options.authors)
    counts = inspect(source)
    print(f"archive: {counts['posts']} posts and tombstones, {counts['outboxes']} outboxes, {counts['entries']} entries", flush=True)
    if counts["posts"] < options.posts * 9 // 10:
        sys.exit("too few posts are in the archive")
    return source


def inspect(servers):
    command = [servers.binary, "archive", "inspect", "--json", servers.data]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def without_archive(name, source, options, ends, settings):
    """A copy of a data directory without its archive, and a configuration for servers on it."""
    directory = ends.enter_context(tempfile.TemporaryDirectory(dir=options.directory))
    shutil.copytree(source.data, os.path.join(directory, "data"), ignore=shutil.ignore_patterns("archive.*"))
    return start_times.Servers(name, directory, options.binary, ["celebrity-followers = 2", *settings])


class Progress(typing.NamedTuple):
    """Writes of posts and of entries, where a write may contain several entries, and whether the comparison has begun."""

    posts: int
    entries: int
    compares: bool

    def share_of(self, full):
        return (self.posts / full.posts + self.entries / full.entries) / 2

    def has_reached(self, point):
        return self.compares or (not point.compares and self.posts >= point.posts and self.entries >= point.entries)


class Copy:
    """A copy of an archive, with all its runs."""

    def __init__(self, options, source, target, directory):
        self.command = [options.binary, "archive", "copy", "--from", source, "--to", target, "--json"]
        self.output = os.path.join(directory, "output")
        self.process, self.seconds, self.runs = None, 0.0, 0

    def start(self):
        self.runs += 1
        self.began = time.monotonic()
        with open(self.output, "w") as output:
            self.process = subprocess.Popen(self.command, stdout=output)

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def lasted(self):
        return time.monotonic() - self.began

    def documents(self):
        with open(self.output) as lines:
            return [json.loads(line) for line in lines if line.endswith("\n")]

    def kill(self):
        if self.is_running():
            self.process.kill()
            self.wait()

    def wait(self):
        self.process.wait()
        self.took = self.lasted()
        self.seconds += self.took

    def kill_when(self, is_due, seconds=0.0):
        """Starts a run, and kills it some seconds after something happened. Waits less if the run ends earlier."""
        while True:
            self.start()
            while not is_due() and self.is_running():
                time.sleep(SAMPLE_SECONDS)
            time.sleep(seconds)
            self.kill()
            if self.process.returncode == -signal.SIGKILL:
                return
            if seconds < SAMPLE_SECONDS:
                sys.exit(f"the copy ended with code {self.process.returncode} before it was killed: {self.documents()}")
            self.finish()
            seconds /= 2

    def written(self):
        """What this run has written, if it has written everything."""
        return next((document["written"] for document in self.documents() if "written" in document), None)

    def finish(self):
        """Waits for the end of a run that is not killed. Returns what it has written."""
        while self.is_running() and self.written() is None:
            time.sleep(SAMPLE_SECONDS)
        before = self.lasted()
        self.wait()
        self.compared = self.took - before
        documents = self.documents()
        if self.process.returncode != 0 or documents[-1] != {"good": True}:
            sys.exit(f"the copy ended with code {self.process.returncode}: {documents}")
        return self.written()

    def report(self, written, name):
        one, other = [document for document in self.documents() if "archive" in document]
        print(f"{name}: {self.seconds:.1f} s in {self.runs} runs; the last one took {self.took:.1f} s and wrote {written}", flush=True)
        print(f"  compared: {one['posts']} and {other['posts']} posts, {one['entries']} and {other['entries']} entries", flush=True)


class ToCassandra(Copy):
    """A copy into a new keyspace."""

    def __init__(self, options, source, store, keyspace, directory):
        self.store, self.keyspace = store, keyspace
        self.url = f"cassandra://127.0.0.1:{store.port}/{keyspace}"
        super().__init__(options, source, self.url, directory)
        subprocess.run([options.binary, "archive", "init", "--archive", self.url, "--replicas", "1"], check=True, stdout=subprocess.DEVNULL)

    def progress(self):
        compares = self.written() is not None
        return Progress(self.writes("posts"), self.writes("outboxes"), compares)

    def writes(self, table):
        """Counts the writes to a table since its creation."""
        where = f"keyspace_name = '{self.keyspace}' AND table_name = '{table}'"
        return int.from_bytes(self.store.query(f'SELECT "count" FROM system_views.local_write_latency WHERE {where}'), "big")

    def observe(self):
        """Copies without interruption. Returns the progress at some times."""
        self.start()
        times = []
        while self.is_running():
            times.append((self.lasted(), self.progress()))
            time.sleep(SAMPLE_SECONDS)
        return times


def kill_points(rng, times, kills):
    """Chooses the points of an observed copy at which another one is killed: the progress, and the seconds of comparison.

    They are spread evenly over the writes of posts and those of entries, which are faster.
    """
    writing = [progress for _, progress in times if not progress.compares]
    comparing = times[len(writing) :]
    if not comparing:
        sys.exit("too few posts: the comparison was not observed")
    full = times[-1][1]
    for nth in range(kills - 1):
        share = (nth + rng.uniform(0.1, 0.9)) / (kills - 1)
        yield next((progress for progress in writing if progress.share_of(full) >= share), writing[-1]), 0.0
    lasted = comparing[-1][0] - comparing[0][0]
    yield comparing[0][1], lasted * rng.uniform(0.1, 0.6)


def copy_with_kills(options, rng, copy, times):
    full = times[-1][1]
    for nth, (point, compared) in enumerate(kill_points(rng, times, options.kills), 1):
        copy.kill_when(lambda point=point: copy.progress().has_reached(point), compared)
        now = copy.progress()
        share = f"{100 * now.posts / full.posts:.0f} % of the posts and {100 * now.entries / full.entries:.0f} % of the entries written"
        print(f"kill {nth} after {copy.took:.1f} s: {share}{', comparing' if now.compares else ''}", flush=True)
    copy.start()
    copy.report(copy.finish(), "copy with kills")
    if (share := copy.progress().share_of(full)) > WRITES_MAX:
        sys.exit(f"the copy wrote {100 * share:.0f} % of what a copy without interruption writes: it did not continue")


def copy_back(options, rng, source, target, seconds, directory, ends):
    """Copies an archive in Cassandra into a data directory, with kills in its first seconds and one during the comparison."""
    copy = Copy(options, source, target, directory)
    ends.callback(copy.kill)
    kills = max(2, options.kills // 3)
    for nth in range(1, kills + 1):
        due = seconds * (nth - rng.random()) / kills

        def is_due(nth=nth, due=due):
            return copy.written() is not None or (nth < kills and copy.lasted() >= due)

        copy.kill_when(is_due)
        print(f"kill {nth} on the way back after {copy.took:.1f} s, having written {copy.written() or 'a part'}", flush=True)
    copy.start()
    copy.report(copy.finish(), "way back with kills")


class Scroll(deep_scroll.Scroll):
    """Also checks bodies, and hashes all entries."""

    def __init__(self, connection, expected):
        super().__init__(connection, expected)
        self.hash = hashlib.sha256()

    def take(self, item):
        super().take(item)
        nth = item["post"]["body"]["nth"]
        self.wrong += item["post"]["body"] != body(nth, is_edited(nth))
        del item["cursor"]
        self.hash.update(json.dumps(item, sort_keys=True).encode())


def scroll(servers, expected):
    """Scrolls through the feed of the reader. Returns the hash of its entries, or none if a post is wrong."""
    process, connection = deep_scroll.serve(servers.binary, servers.directory, servers.config, PATIENCE)
    try:
        scrolled = Scroll(connection, expected)
        while not scrolled.is_over:
            scrolled.page()
    finally:
        connection.close()
        process.terminate()
        process.wait()
    digest = scrolled.hash.hexdigest()
    print(f"feed of {servers.name}: {scrolled.shown} of {len(expected)} entries, {scrolled.wrong} wrong, hash {digest[:16]}", flush=True)
    return digest if scrolled.is_right() else None


def export(servers):
    """Exports a data directory. Returns none if that fails."""
    path = os.path.join(servers.directory, "export")
    is_done = subprocess.run([servers.binary, "export", "--data-dir", servers.data, "--out", path]).returncode == 0
    return path if is_done else None


def lacks_tombstones(store, posts):
    """Returns true if Cassandra lacks a tombstone. Servers have them in memory, too, so no server shows it."""
    ids = [nth + 1 - (1 << 63) for nth in range(posts) if is_deleted(nth)]
    for some in (ids[at : at + 100] for at in range(0, len(ids), 100)):
        where = f"id IN ({', '.join(map(str, some))}) AND deleted = true ALLOW FILTERING"
        if int.from_bytes(store.query(f"SELECT count(*) FROM feeds.posts WHERE {where}"), "big") != len(some):
            return True
    return False


def hash_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(options, source, back, on_cassandra, store):
    """Compares the data directories and the servers on them."""
    if lacks_tombstones(store, options.posts):
        yield "Cassandra lacks tombstones"
    if inspect(source) != inspect(back):
        yield "the archive that was copied back has other counts"
    if subprocess.run([options.binary, "archive", "verify", back.data]).returncode != 0:
        yield "the archive that was copied back is damaged"
    exports = [export(source), export(back)]
    if None in exports or not filecmp.cmp(*exports, shallow=False):
        yield "the exports differ"
    expected = list(expected_feed(options.posts))
    hashes = [scroll(servers, expected) for servers in [source, back, on_cassandra]]
    if None in hashes:
        yield "a feed has not the expected posts"
    elif len(set(hashes)) > 1:
        yield "the entries of the feeds differ"


def main():
    options = arguments()
    rng = random.Random(options.seed)
    print(f"seed {options.seed}", flush=True)
    found = []
    with contextlib.ExitStack() as ends:
        directory = ends.enter_context(tempfile.TemporaryDirectory(dir=options.directory))
        source = create_source(options, directory)
        before = hash_of(os.path.join(source.data, "archive.redb"))
        store = archive_faults.Store(os.path.join(directory, "store"), settings=archive_faults.FAST)
        store.start(ends)

        whole = ToCassandra(options, source.data, store, "whole", directory)
        ends.callback(whole.kill)
        times = whole.observe()
        whole.report(whole.finish(), "copy without interruption")
        store.query("DROP KEYSPACE whole")

        copy = ToCassandra(options, source.data, store, "feeds", directory)
        ends.callback(copy.kill)
        copy_with_kills(options, rng, copy, times)
        if hash_of(os.path.join(source.data, "archive.redb")) != before:
            found.append("the copies changed their source")
        copy.start()
        if any((written := copy.finish()).values()):
            found.append(f"a repeated copy found differences: {written}")
        print(f"repeated copy: wrote {written}", flush=True)

        back = without_archive("the copy back", source, options, ends, [])
        on_cassandra = without_archive("Cassandra", source, options, ends, [f'archive = "{copy.url}"'])
        copy_back(options, rng, copy.url, back.data, copy.compared, directory, ends)
        found.extend(differences(options, source, back, on_cassandra, store))
    print("\n".join(found) or "equal: both archives, both exports and all feeds")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
