#!/usr/bin/env python3
"""Causes all kinds of failures of Cassandra under load, and checks that no page lacks a post afterwards.

    cargo build --release -p tidewire-server --features cassandra
    scripts/cassandra.sh install
    scripts/archive_faults.py [--nodes 3] [--seconds 10] [--readers 200] [--idle-store] [--binary target/release/tidewire]

Starts one node of Cassandra, or three with a replica of each row on every node, and a server with few posts in memory. Clients
publish, edit and delete continuously, including old posts, and others read pages from memory and from the archive. Meanwhile one
node is killed, paused, restarted, delayed by a second and filled until its disk is full. With three nodes the others are a quorum,
so two nodes are killed at once as well. Finally a table is dropped, and rows are overwritten with invalid data.
After each fault, when old posts have left memory, the feeds of all readers are scrolled to their end and compared with a naive
computation. The last columns are the 99th percentile of pages from memory before the fault, and, divided by it, those during the fault and
until all nodes are back. A starting Cassandra takes processor time, caches and memory from the server on the same machine: a
restart of an unused one shows how much. The full disk needs root, to mount a file system in memory. The exit code is 1 if anything
is missing, repeated or wrong, or if no statement fails while too few nodes are left.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

AUTHORS, FOLLOWED, WRITERS = 40, 10, 4
OUTBOX_POSTS = 10
# Outboxes grow to twice their limit before posts leave memory, and changes of up to 128 posts wait for a round.
IN_MEMORY_MAX = AUTHORS * 2 * OUTBOX_POSTS + 128
DISK_BYTES = 768 << 20
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cassandra.sh")
PATIENCE = 180  # seconds
ATTEMPTS = 5
# Below the ports that systems give to outgoing connections.
PORTS = 12_000, 20_000
FAILED = "tidewire_archive_statements_failed_total"
FAILS_WITHIN = 20  # seconds
LONGEST_PAGE = 10  # seconds, five times the default limit of a page from the archive
QUORUM = 4  # a consistency level in the protocol of Cassandra


class Api:
    """One connection to the server."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def call(self, method, path, document=None):
        body = None if document is None else json.dumps(document)
        headers = {} if body is None else {"Content-Type": "application/json"}
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        text = response.read()
        is_json = "json" in (response.getheader("Content-Type") or "")
        return response.status, json.loads(text) if is_json and text else text.decode()


def free_port(in_a_row=1):
    """The first of some ports that are free on all addresses. Nothing listens on them meanwhile."""
    while True:
        first = random.randrange(*PORTS)
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in range(first, first + in_a_row):
                probes.enter_context(socket.socket()).bind(("", port))
            return first


class Proxy:
    """Forwards connections to another port of the same host, and delays each piece of data by `delay` seconds."""

    def __init__(self, host, port, target):
        self.target, self.delay = (host, target), 0.0
        self.listener = socket.create_server((host, port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            try:
                store = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            for source, target, delays in [(client, store, True), (store, client, False)]:
                threading.Thread(target=self.relay, args=(source, target, delays), daemon=True).start()

    def relay(self, source, target, delays):
        pieces, arrived = [], threading.Condition()

        def write():
            while True:
                with arrived:
                    arrived.wait_for(lambda: pieces)
                    due, data = pieces.pop(0)
                time.sleep(max(0.0, due - time.monotonic()))
                try:
                    if not data:
                        target.shutdown(socket.SHUT_WR)
                        return
                    target.sendall(data)
                except OSError:
                    with contextlib.suppress(OSError):
                        source.shutdown(socket.SHUT_RD)
                    return

        threading.Thread(target=write, daemon=True).start()
        data = b"?"
        while data:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            with arrived:
                pieces.append((time.monotonic() + (self.delay if delays else 0.0), data))
                arrived.notify()


# Nodes that lose nothing when they are killed, and nodes for measurements.
SAFE = {"CASSANDRA_SYNC": "batch"}
FAST = {"CASSANDRA_SYNC": "periodic", "CASSANDRA_HEAP": "1g"}


class Store:
    """Nodes of Cassandra, and connections to the first with the required subset of the protocol (version 4)."""

    def __init__(self, directory, nodes=1, before=(), settings=SAFE):
        self.directory, self.nodes, self.port, self.before = directory, nodes, free_port(2), before
        self.environment = os.environ | {"CASSANDRA_PORT": str(self.port)} | settings

    def start(self, ends):
        """Starts the nodes. `ends` stops them, even if they do not become ready."""
        ends.callback(self.command, "kill")
        self.restore()
        return self

    def restore(self):
        """Starts the nodes that are not running."""
        self.command("start", self.nodes)

    def restart(self, node):
        self.command("stop", node)
        self.restore()

    def command(self, name, *node):
        words = [*self.before, SCRIPT, name, self.directory, *map(str, node)]
        subprocess.run(words, env=self.environment, check=True, stdout=subprocess.DEVNULL)

    def query(self, text):
        """Returns the first column of the first row, if there is one."""
        body = text.encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            self.ask(connection, 1, struct.pack(">HH11sH5s", 1, 11, b"CQL_VERSION", 5, b"3.0.0"))
            kind, answer = self.ask(connection, 7, struct.pack(">I", len(body)) + body + struct.pack(">HB", QUORUM, 0))
        if kind == 0:
            sys.exit(f"{text}: {answer[6:].decode(errors='replace')}")
        if struct.unpack(">I", answer[:4])[0] != 2:
            return None
        # The flags, one column, the keyspace and table, the name of the column, its type, the rows.
        place = 12
        for _ in range(3):
            place += 2 + struct.unpack(">H", answer[place : place + 2])[0]
        rows, length = struct.unpack(">Ii", answer[place + 2 : place + 10])
        return answer[place + 10 : place + 10 + length] if rows else None

    @staticmethod
    def ask(connection, opcode, body):
        connection.sendall(struct.pack(">BBHBI", 4, 0, 0, opcode, len(body)) + body)
        reading = connection.makefile("rb")
        _, flags, _, kind, length = struct.unpack(">BBHBI", reading.read(9))
        answer = reading.read(length)
        # An answer with warnings begins with them.
        for _ in range(struct.unpack(">H", answer[:2])[0] if flags & 8 else 0):
            answer = answer[2 + struct.unpack(">H", answer[2:4])[0] :]
        return kind, answer[2:] if flags & 8 else answer


class Server:
    running = None  # the running process

    def __init__(self, args, directory, url):
        self.port = free_port()
        self.log = open(os.path.join(directory, "server.log"), "a")
        command = [args.binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--data-dir", os.path.join(directory, "data")]
        self.process = subprocess.Popen([*command, "--outbox-posts", str(OUTBOX_POSTS), "--archive", url], stderr=self.log)
        Server.running = self.process
        began = time.monotonic()
        while True:
            with contextlib.suppress(OSError):
                if Api(self.port).call("GET", "/readyz")[0] == 200:
                    return
            if self.process.poll() is not None or time.monotonic() - began > PATIENCE:
                sys.exit(f"the server did not start; see {self.log.name}")
            time.sleep(0.05)

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        Server.running = None

    @classmethod
    def kill_running(cls):
        if cls.running:
            cls.running.kill()
            cls.running.wait()

    def metric(self, name):
        text = Api(self.port).call("GET", "/metrics")[1]
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name + " "))


class World:
    """The accepted writes, and clients that write more."""

    def __init__(self, args):
        self.random = random.Random(args.seed)
        self.follows = {f"reader{nth}": self.random.sample(range(AUTHORS), FOLLOWED) for nth in range(args.readers)}
        self.posts = [{} for _ in range(AUTHORS)]  # author -> id -> body, oldest first
        self.next_id = 0
        # The allowed codes of refused writes, and of refused pages of old posts.
        self.refusals, self.page_refusals = {"archive_unavailable", "overloaded"}, {"archive_unavailable", "overloaded"}
        self.phase = "before any fault"
        self.refused, self.problems, self.times, self.deep = 0, [], [], [0, 0]
        self.lock, self.stopping = threading.Lock(), threading.Event()

    def complain(self, problem):
        self.problems.append(f"{self.phase}: {problem}")

    def set_up(self, port):
        follows = [{"follower": reader, "source": f"author{nth}"} for reader, some in self.follows.items() for nth in some]
        status, answer = Api(port).call("POST", "/v1/follows", {"follows": follows})
        assert status == 200, answer

    def write(self, port, number, rate):
        """Publishes, edits and deletes as authors whom no other client uses."""
        api, rng, due = Api(port), random.Random(number), time.monotonic()
        while not self.stopping.is_set():
            due = max(due + 1 / rate, time.monotonic() - 0.1)
            time.sleep(max(0.0, due - time.monotonic()))
            author = rng.randrange(number, AUTHORS, WRITERS)
            posts, kind = self.posts[author], rng.random()
            if kind < 0.9 or not posts:
                with self.lock:
                    self.next_id += 1
                    post = str(self.next_id)
                status, answer = api.call("POST", "/v1/posts", {"id": post, "author": f"author{author}", "body": "as it was"})
                if status == 201:
                    posts[post] = "as it was"
            else:
                post = rng.choice(list(posts))
                if kind < 0.95:
                    status, answer = api.call("PATCH", f"/v1/posts/{post}", {"body": "edited"})
                    if status == 200:
                        posts[post] = "edited"
                else:
                    status, answer = api.call("DELETE", f"/v1/posts/{post}")
                    if status == 204:
                        del posts[post]
            if status >= 500 and answer["code"] in self.refusals:
                self.refused += 1
            elif status >= 300:
                self.complain(f"{post}: {status} {answer}")

    def read_newest(self, port):
        """Reads pages from memory."""
        api, rng, readers = Api(port), random.Random(1), list(self.follows)
        while not self.stopping.is_set():
            reader = rng.choice(readers)
            began = time.monotonic()
            status, page = api.call("GET", f"/v1/users/{reader}/feed?limit=10")
            self.times.append(time.monotonic() - began)
            if status != 200 or page["partial"]:
                self.complain(f"a page of the newest posts: {status} {page}")
            time.sleep(0.001)

    def read_old(self, port):
        api, rng, readers = Api(port), random.Random(2), list(self.follows)
        while not self.stopping.is_set():
            path, cursor = f"/v1/users/{rng.choice(readers)}/feed?limit=20", ""
            while cursor is not None and not self.stopping.is_set():
                began = time.monotonic()
                status, page = api.call("GET", path + cursor)
                took = time.monotonic() - began
                if took > LONGEST_PAGE:
                    self.complain(f"a page of old posts took {took:.1f} s")
                if status != 200 and not (status >= 500 and page["code"] in self.page_refusals):
                    self.complain(f"a page of old posts: {status} {page}")
                self.deep[0] += 1
                self.deep[1] += status != 200 or bool(page["partial"])
                cursor = f"&before={page['next']}" if status == 200 and page["next"] else None
                time.sleep(0.02)

    def attempt(self, work, args):
        try:
            work(*args)
        except Exception as error:  # for example, no answer
            self.complain(f"{work.__name__}: {error!r}")

    @contextlib.contextmanager
    def load(self, port, rate):
        self.stopping.clear()
        clients = [(self.write, (port, number, rate / WRITERS)) for number in range(WRITERS)]
        clients += [(self.read_newest, (port,)), (self.read_old, (port,))]
        threads = [threading.Thread(target=self.attempt, args=client) for client in clients]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join()

    def p99(self):
        """The 99th percentile of pages from memory since the last call, in seconds."""
        times, self.times = sorted(self.times), []
        return times[len(times) * 99 // 100]

    def compare(self, port, unreadable=()):
        """Scrolls all feeds to their end. Waits while pages are partial."""
        api, began = Api(port), time.monotonic()
        for reader, followed in self.follows.items():
            expected = {post: body for nth in followed for post, body in self.posts[nth].items() if post not in unreadable}
            while (found := self.scrolled(api, reader, unreadable)) is None:
                if time.monotonic() - began > PATIENCE:
                    sys.exit(f"{reader}'s feed is partial")
                time.sleep(0.5)
            ids = [post for post, _ in found]
            if len(set(ids)) != len(ids):
                self.complain(f"{reader} sees a post twice")
            lacks, adds = expected.items() - found, set(found) - expected.items()
            if lacks or adds:
                self.complain(f"{reader} lacks {sorted(lacks)[:5]} and sees {sorted(adds)[:5]}, of {len(expected)}")

    def scrolled(self, api, reader, unreadable):
        found, cursor, before = [], "", None
        while cursor is not None:
            status, page = api.call("GET", f"/v1/users/{reader}/feed?limit=100{cursor}")
            if status != 200 or page["partial"]:
                return None
            strange = set(page.get("unreadable", [])) - set(unreadable)
            if strange:
                self.complain(f"{reader} cannot read {sorted(strange)[:5]}")
            for item in page["items"]:
                at = moment(item["post"]["published_at"])
                if before is not None and at > before:
                    self.complain(f"{reader} sees {item['post']['id']} out of order")
                before = at
                found.append((item["post"]["id"], item["post"]["body"]))
            cursor = f"&before={page['next']}" if page["next"] else None
        return found


def moment(text):
    """Times have up to six decimals, and none when whole."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return whole, fraction.ljust(6, "0")


def caught_up(server):
    """Waits until no post stays in memory only because of the store."""
    began = time.monotonic()
    while (kept := server.metric("tidewire_posts")) > IN_MEMORY_MAX:
        if time.monotonic() - began > PATIENCE:
            sys.exit(f"{kept:.0f} posts do not leave memory")
        time.sleep(0.2)


@contextlib.contextmanager
def small_disk(directory):
    """Makes a directory, on a small file system if that can be mounted; then the result is true."""
    os.makedirs(directory)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tidewire", directory], stderr=subprocess.DEVNULL)
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", directory], check=True)


def faults(store, unused, proxies, small):
    """Each fault: its name, its start, its end, and whether too few nodes are left. `small` is the node with a small disk."""
    first, middle, last = 1, (store.nodes + 1) // 2, store.nodes
    is_only = store.nodes == 1
    ballast = os.path.join(store.directory, str(small), "ballast")

    def kill(*nodes):
        for node in nodes:
            store.command("kill", node)

    def delay(node, seconds):
        proxies[node - 1].delay = seconds

    def fill():
        with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))

    def empty():
        # Cassandra stops some time after it cannot write its commit log.
        kill(small)
        os.remove(ballast)
        store.restore()

    all_faults = [
        ("killed", lambda: kill(first), store.restore, is_only),
        ("paused", lambda: store.command("pause", middle), lambda: store.command("resume", middle), False),
        ("restarted", lambda: store.restart(last), lambda: None, is_only),
        ("unused one restarted", lambda: unused.restart(1), lambda: None, False),
        ("slow by a second", lambda: delay(middle, 1.0), lambda: delay(middle, 0.0), False),
    ]
    if not is_only:
        all_faults.append(("two killed", lambda: kill(first, last), store.restore, True))
    if small:
        all_faults.append(("disk full", fill, empty, is_only))
    else:
        print("skipped: disk full (needs root)", flush=True)
    return all_faults


def archive(args, *arguments):
    """Repeats a command that did not complete: statements may time out on a busy machine. A copy that differs fails at once."""
    for _ in range(ATTEMPTS):
        done = subprocess.run([args.binary, "archive", *arguments], stdout=subprocess.PIPE, text=True)
        if done.returncode == 0:
            return
        if "bad: " in done.stdout:
            break
        time.sleep(1)
    sys.exit(f"archive {' '.join(arguments)} failed: {done.stdout}")


def initialize(args, url):
    archive(args, "init", "--archive", url, "--replicas", str(args.nodes))


def await_failure(world, server, failed):
    """Waits until more than this number of statements failed: too few nodes are left."""
    began = time.monotonic()
    while server.metric(FAILED) == failed:
        if time.monotonic() - began > FAILS_WITHIN:
            world.complain("no statement failed")
            return
        time.sleep(0.1)


def try_fault(args, world, server, name, begin, end, stops_store):
    world.phase, failed = name, server.metric(FAILED)
    with world.load(server.port, args.rate):
        time.sleep(1)
        world.p99()
        time.sleep(args.seconds)
        quiet, world.deep, refused = world.p99(), [0, 0], world.refused
        begin()
        time.sleep(args.seconds)
        during = world.p99()
        deep = list(world.deep)
        if stops_store:
            await_failure(world, server, failed)
        end()
        time.sleep(args.seconds / 2)
        after = world.p99()
    caught_up(server)
    world.compare(server.port)
    held = f"{deep[0]:8} {deep[1]:8} {world.refused - refused:8}"
    print(f"{name:20} {held} {quiet * 1e3:9.2f} {during / quiet:7.2f} {after / quiet:6.2f}", flush=True)


def try_dropped_table(args, world, server, store, directory, url, copy):
    """Restores its content from a copy, as an operator would from a backup."""
    world.phase = "table dropped"
    server.stop()
    initialize(args, copy)
    archive(args, "copy", "--from", url, "--to", copy)
    server = Server(args, directory, url)
    # The server reports a permanent failure of the archive as its own error. Edits of posts that cannot be read get it later, too.
    world.refusals.add("archive_failed")
    world.page_refusals.add("archive_failed")
    try_with(args, world, server, lambda: store.query("DROP TABLE feeds.posts"))
    world.page_refusals.remove("archive_failed")
    server.stop()
    for table in ["outboxes", "buckets", "meta"]:
        store.query(f"DROP TABLE feeds.{table}")
    initialize(args, url)
    archive(args, "copy", "--from", copy, "--to", url)
    server = Server(args, directory, url)
    caught_up(server)
    world.compare(server.port)
    print("table dropped         and restored from a copy", flush=True)
    return server


def try_with(args, world, server, begin):
    with world.load(server.port, args.rate):
        time.sleep(1)
        begin()
        time.sleep(args.seconds)


def try_bad_rows(args, world, server, store, directory, url):
    world.phase = "rows that do not decode"
    # The oldest posts, which left memory long ago.
    ids = [next(iter(posts)) for posts in world.posts if posts]
    server.stop()
    records = {}
    for post in ids:
        key = int(post) - (1 << 63)
        records[post] = store.query(f"SELECT record FROM feeds.posts WHERE id = {key}")
        store.query(f"UPDATE feeds.posts USING TIMESTAMP {1 << 61} SET record = 0x00ff WHERE id = {key}")
    server = Server(args, directory, url)
    # The replayed posts are in memory at first.
    api, began = Api(server.port), time.monotonic()
    while any(api.call("GET", f"/v1/posts/{post}")[0] == 200 for post in ids):
        if time.monotonic() - began > PATIENCE:
            sys.exit("old posts do not leave memory after a start")
        time.sleep(0.2)
    world.compare(server.port, unreadable=ids)
    try_with(args, world, server, lambda: None)
    server.stop()
    for post, record in records.items():
        store.query(f"UPDATE feeds.posts USING TIMESTAMP {(1 << 61) + 1} SET record = 0x{record.hex()} WHERE id = {int(post) - (1 << 63)}")
    server = Server(args, directory, url)
    print(f"{len(ids)} invalid rows: reported as unreadable, and readable again after their repair", flush=True)
    return server


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/tidewire")
    parser.add_argument("--nodes", type=int, choices=[1, 3], default=1, help="number of nodes of Cassandra")
    parser.add_argument("--seconds", type=float, default=10, help="duration of each fault, in seconds")
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--rate", type=float, default=200, help="writes per second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--idle-store", action="store_true", help="give Cassandra only idle processor time, to measure pages")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    world = World(args)
    with contextlib.ExitStack() as ends:
        directory = ends.enter_context(tempfile.TemporaryDirectory(prefix="tidewire-faults-"))
        data = os.path.join(directory, "store")
        is_small = ends.enter_context(small_disk(os.path.join(data, str(args.nodes))))
        before = ["chrt", "--idle", "0"] if args.idle_store else []
        store = Store(data, args.nodes, before).start(ends)
        unused = Store(os.path.join(directory, "unused"), before=before).start(ends)
        ends.callback(Server.kill_running)
        # The driver discovers the nodes by their hosts, and assumes the port that it has connected to.
        hosts, port = [f"127.0.0.{node}" for node in range(1, args.nodes + 1)], free_port()
        proxies = [Proxy(host, port, store.port) for host in hosts]
        url = f"cassandra://{','.join(f'{host}:{port}' for host in hosts)}/feeds"
        initialize(args, url)
        server = Server(args, directory, url)
        world.set_up(server.port)
        try_with(args, world, server, lambda: None)
        print("fault                old pages  partial  refused    p99 ms  during  after", flush=True)
        for fault in faults(store, unused, proxies, args.nodes if is_small else None):
            try_fault(args, world, server, *fault)
        server = try_dropped_table(args, world, server, store, directory, url, url.replace("/feeds", "/kept"))
        server = try_bad_rows(args, world, server, store, directory, url)
        world.phase = "rows that decode again"
        world.compare(server.port)
        server.stop()
    total = sum(len(posts) for posts in world.posts)
    print(f"{total} posts; {args.readers} feeds scrolled to their end after each fault; {world.refused} writes refused")
    for problem in world.problems[:20]:
        print(problem)
    sys.exit(1 if world.problems else 0)


if __name__ == "__main__":
    main()
