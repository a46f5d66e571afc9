#!/usr/bin/env python3
"""Repeats the writes of an application to its old database in Tidewire, and keeps them in a log to replay them.

    python3 examples/migrate/both.py write --log writes.jsonl < new.jsonl
    python3 examples/migrate/both.py replay --log writes.jsonl

A write is one line: {"publish": POST}, {"edit": [ID, BODY]}, {"delete": ID}, {"follow": [USER, SOURCE]}, {"unfollow": [USER, SOURCE]},
{"mute": [USER, SOURCE]}, {"unmute": [USER, SOURCE]}, {"rules": [USER, RULES]}. An ID is that of the post, or ext: and its external id; a POST has
one of the two. An application in Python uses the class Both. `write` sends each line once; the log also has the writes that failed. It exits at a
line that is not a write, and if it cannot write the log, because `replay` would lack later writes. `replay` sends the whole log again in its order,
which is idempotent: posts have ids, and the last write of a follow decides.
"""

import argparse
import collections
import http.client
import json
import os
import sys

from api import Refused, Server, post_path, user_path
from commands import server_arguments

LINES_SHOWN_MAX = 50
# The longest wait of an application.
TIMEOUT_SECONDS = 5


def request_of(write):
    """Returns the method, path and body of a write. Raises ValueError if it is not a write."""
    match write:
        case {"publish": {"id": str()} as post} | {"publish": {"external_id": str()} as post}:
            return "POST", "/v1/posts", post
        case {"edit": [str(key), body]}:
            return "PATCH", post_path(key), {"body": body}
        case {"delete": str(key)}:
            return "DELETE", post_path(key), None
        case {"follow": [str(user), str(source)]}:
            return "PUT", user_path(user, "following", source), None
        case {"unfollow": [str(user), str(source)]}:
            return "DELETE", user_path(user, "following", source), None
        case {"mute": [str(user), str(source)]}:
            return "PUT", user_path(user, "mutes", source), None
        case {"unmute": [str(user), str(source)]}:
            return "DELETE", user_path(user, "mutes", source), None
        case {"rules": [str(user), dict(rules)]}:
            return "PATCH", user_path(user, "rules"), rules
    raise ValueError(f"not a write: {json.dumps(write)[:200]}")


class Both:
    """Writes to Tidewire after the old database, which stays authoritative."""

    def __init__(self, server, log):
        self._server, self._log = server, open(log, "a+b", buffering=0)
        # Ends a line that a crash has cut.
        if self._log.tell() and os.pread(self._log.fileno(), 1, self._log.tell() - 1) != b"\n":
            self._log.write(b"\n")

    def write(self, write):
        """Logs a write, and sends it once. Returns None, or the reason why it failed.

        Raises ValueError if it is not a write, and OSError if it cannot be logged. Then nothing was sent, and `replay` will not send it.
        """
        method, path, body = request_of(write)
        self._log.write(json.dumps(write).encode() + b"\n")
        os.fsync(self._log.fileno())
        try:
            status, answer = self._server.once(method, path, body)
        except (OSError, http.client.HTTPException) as cause:
            return f"{type(cause).__name__}: {cause}"
        return None if status < 300 else f"{status} {answer[:300]}"


def read(line):
    """Returns a line as a write. Raises ValueError if it is not a write."""
    write = json.loads(line)
    request_of(write)
    return write


def write_all(server, log):
    both, counts = Both(server, log), collections.Counter()
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        try:
            write = read(line)
        except ValueError as cause:
            # Writes depend on their order, so later ones must not overtake this one.
            sys.exit(f"standard input:{number}: {cause}")
        why = both.write(write)
        counts["not written to Tidewire: replay" if why else "written"] += 1
        if why:
            show(counts, f"standard input:{number}: {why}")
    return counts, 0


def replay_all(server, log):
    counts = collections.Counter()
    try:
        with open(log) as lines:
            for number, line in enumerate(lines, 1):
                if line.endswith("\n"):
                    _replay(server, f"{log}:{number}", line, counts)
    except OSError as cause:
        sys.exit(f"--log {log}: {cause.strerror}")
    return counts, 1 if counts["refused"] else 0


def _replay(server, place, line, counts):
    try:
        write = read(line)
        server.ask(*request_of(write))
        counts["written"] += 1
    except ValueError as cause:
        # A crash has cut it, so it was not acknowledged.
        counts["refused"] += 1
        show(counts, f"{place}: {cause}")
    except Refused as refused:
        # A later line of the log, or the import, has overtaken these. `compare` checks the result.
        overtaken = {
            ("publish", "post_deleted"): "posts that are deleted by now",
            ("publish", "post_id_taken"): "posts that have another content by now",
            ("edit", "unknown_post"): "edits of posts that are not there by now",
        }
        what = overtaken.get((next(iter(write)), refused.problem.get("code")))
        if what:
            counts[what] += 1
        else:
            counts["refused"] += 1
            show(counts, f"{place}: {refused}")


def show(counts, line):
    if counts["refused"] + counts["not written to Tidewire: replay"] <= LINES_SHOWN_MAX:
        print(line)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="Exit code 1 if Tidewire refused a replayed write.")
    parser.add_argument("command", choices=["write", "replay"])
    server_arguments(parser)
    parser.add_argument("--log", required=True, help="the log of all writes")
    chosen = parser.parse_args()
    if chosen.command == "write":
        counts, code = write_all(Server(chosen.server, chosen.key, TIMEOUT_SECONDS), chosen.log)
    else:
        counts, code = replay_all(Server(chosen.server, chosen.key), chosen.log)
    for name, number in counts.items():
        print(f"{number:>12,}  {name}")
    sys.exit(code)
