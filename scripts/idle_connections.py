#!/usr/bin/env python3
"""Idle connections beside honest writes: none of the writes may be refused, and their p99 at most doubles.

Starts the server with so many open files that it may have, writes over three ends of journal segments without idle connections, then the
same with them, and prints both. Each idle connection sends one `GET /healthz` and then nothing.

    cargo build --release
    scripts/idle_connections.py --files 1024 --idle 1300
    scripts/idle_connections.py --idle 20000          # with the limit that there is
"""

import argparse
import http.client
import json
import multiprocessing
import os
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
SEGMENT_BYTES = 64 << 20
BODY = json.dumps({"author": "ann", "body": "x" * 65_000}).encode()
WRITERS = 4
# Every so many writes come by a connection of their own.
FRESH_EVERY = 20
PER_PROCESS = 8_000


def hold(port, count, opened, done):
    """Opens idle connections, and keeps them until `done`."""
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


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", default="target/release/tidewire")
    options.add_argument("--files", type=int, help="soft and hard limit on open files [default: as it is]")
    options.add_argument("--soft", type=int, help="soft limit alone")
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
            for _ in range(200):
                time.sleep(0.1)
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{options.port}/readyz", timeout=5).read()
                    break
                except OSError:
                    pass
            # Kept from before the idle ones come.
            connections = [http.client.HTTPConnection("127.0.0.1", options.port, timeout=60) for _ in range(WRITERS)]
            measure(options.port, 1, connections)
            before = measure(options.port, options.segments, connections)
            opened, done = multiprocessing.Queue(), multiprocessing.Event()
            shares = [min(PER_PROCESS, options.idle - first) for first in range(0, options.idle, PER_PROCESS)]
            holders = [multiprocessing.Process(target=hold, args=(options.port, share, opened, done)) for share in shares]
            for holder in holders:
                holder.start()
            came = [opened.get() for _ in holders]
            held, failed = (sum(part) for part in zip(*came))
            files = len(os.listdir(f"/proc/{server.pid}/fd"))
            beside = measure(options.port, options.segments, connections)
            done.set()
            for holder in holders:
                holder.join()
            for name, (median, p99, count, refused) in (("alone", before), (f"beside {held} idle", beside)):
                print(f"{name}: {count} writes, {len(refused)} refused {refused[:3]}, p50 {median:.2f} ms, p99 {p99:.2f} ms")
            print(f"p99 {beside[1] / before[1]:.2f} times; {failed} connections could not be opened; {files} files open")
        finally:
            server.terminate()
            server.wait()
            log.seek(0)
            lines = log.readlines()
            print(f"{len(lines)} lines in the log")
            print("".join(line for line in lines if "WARN" in line or "ERROR" in line)[:2_000], end="")


if __name__ == "__main__":
    main()
