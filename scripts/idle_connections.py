#!/usr/bin/env python3
"""Measures writes beside idle connections: none may be refused, and their p99 should at most double.

Starts the server with a limit on open files, writes across three ends of journal segments without idle connections, then the
same with them, and prints both; the exit status is 0 if no write was refused. Each idle connection sends one `GET /healthz` and then nothing. The number
of open ones is that of the server, before and after the writes: it closes some of them for others, and all that are idle for 75 s.

    cargo build --release
    scripts/idle_connections.py --files 1024 --idle 1300
    scripts/idle_connections.py --idle 20000          # with the current limit
"""

import argparse
import http.client
import json
import multiprocessing
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
SEGMENT_BYTES = 64 << 20
BODY = json.dumps({"author": "ann", "body": "x" * 65_000}).encode()
WRITERS = 4
# Every so many writes, one uses a new connection.
FRESH_EVERY = 20
PER_PROCESS = 8_000


def hold(port, count, opened, done):
    """Opens idle connections, and holds them until `done`."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held, refused = [], 0
    for _ in range(count):
        try:
            one = socket.create_connection(("127.0.0.1", port), timeout=20)
            one.sendall(GET)
            held.append(one)
        except OSError:
            refused += 1
    opened.put((len(held), refused))
    done.wait()


def write(port, count, connection, taken, refused):
    for nth in range(count):
        one = http.client.HTTPConnection("127.0.0.1", port, timeout=5) if nth % FRESH_EVERY == 7 else connection
        began = time.perf_counter()
        try:
            one.request("POST", "/v1/posts", BODY, {"Content-Type": "application/json"})
            answer = one.getresponse()
            answer.read()
            if answer.status != 201:
                refused.append(answer.status)
        except (OSError, http.client.HTTPException) as cause:
            refused.append(repr(cause))
            one.close()
        taken.append(time.perf_counter() - began)


def measure(port, segments, connections):
    taken, refused = [], []
    each = segments * (SEGMENT_BYTES // len(BODY) + 1) // WRITERS
    threads = [threading.Thread(target=write, args=(port, each, connection, taken, refused)) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken.sort()
    at = lambda share: taken[int(share * (len(taken) - 1))] * 1e3
    return at(0.5), at(0.99), len(taken), refused


def wait_until_ready(port, server):
    for _ in range(200):
        time.sleep(0.1)
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode}")
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).read()
        except OSError:
            pass
    sys.exit("the server is not ready after 20 s")


def open_connections(port):
    """The open connections that the server counts, including that of this request."""
    metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
    return next(int(line.split()[1]) for line in metrics.splitlines() if line.startswith("tidewire_connections "))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", default="target/release/tidewire")
    options.add_argument("--files", type=int, help="soft and hard limit on open files [default: unchanged]")
    options.add_argument("--soft", type=int, help="only the soft limit")
    options.add_argument("--idle", type=int, default=1_300)
    options.add_argument("--segments", type=int, default=3)
    options.add_argument("--port", type=int, default=18_473)
    options = options.parse_args()
    limits = (f"ulimit -n {options.files}; " if options.files else "") + (f"ulimit -Sn {options.soft}; " if options.soft else "")
    with tempfile.TemporaryDirectory() as directory:
        log = open(os.path.join(directory, "log"), "w+")
        command = [options.program, "serve", "--listen", f"127.0.0.1:{options.port}", "--data-dir", os.path.join(directory, "data")]
        server = subprocess.Popen(["sh", "-c", limits + 'exec "$0" "$@"', *command], stderr=log)
        try:
            wait_until_ready(options.port, server)
            # Opened before the idle ones.
            connections = [http.client.HTTPConnection("127.0.0.1", options.port, timeout=60) for _ in range(WRITERS)]
            measure(options.port, 1, connections)
            before = measure(options.port, options.segments, connections)
            opened, done = multiprocessing.Queue(), multiprocessing.Event()
            shares = [min(PER_PROCESS, options.idle - first) for first in range(0, options.idle, PER_PROCESS)]
            holders = [multiprocessing.Process(target=hold, args=(options.port, share, opened, done), daemon=True) for share in shares]
            for holder in holders:
                holder.start()
            came = [opened.get(timeout=600) for _ in holders]
            _, failed = (sum(part) for part in zip(*came))
            first = open_connections(options.port)
            files = len(os.listdir(f"/proc/{server.pid}/fd"))
            beside = measure(options.port, options.segments, connections)
            last = open_connections(options.port)
            done.set()
            for holder in holders:
                holder.join()
            for name, (median, p99, count, refused) in (("alone", before), (f"beside {first} open connections", beside)):
                print(f"{name}: {count} writes, {len(refused)} refused {refused[:3]}, p50 {median:.2f} ms, p99 {p99:.2f} ms")
            times = beside[1] / before[1]
            print(f"p99 {times:.2f} times; {failed} connections could not be opened; {last} open at the end; {files} files open")
            held = not before[3] and not beside[3]
        finally:
            server.terminate()
            server.wait(timeout=120)
            log.seek(0)
            lines = log.readlines()
            print(f"{len(lines)} lines in the log")
            print("".join(line for line in lines if "WARN" in line or "ERROR" in line)[:2_000], end="")
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
