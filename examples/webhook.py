#!/usr/bin/env python3
"""Sends posts that sleeping readers missed to a webhook: one POST of JSON for each reader and post.

    python3 examples/webhook.py --server http://127.0.0.1:8080 --to https://push.example/hook

Readers opt in by `PATCH /v1/users/{user}/rules` with {"notify": true}. A file stores the place in the stream after the webhook has
accepted a message. So after a crash, one message is sent again, and none is lost. Needs only the standard library.
"""

import argparse
import http.client
import json
import os
import pathlib
import sys
import time
import urllib.error
import urllib.request

PAUSE_MAX_SECONDS = 60


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="http://127.0.0.1:8080", help="the Tidewire server")
    parser.add_argument("--to", required=True, help="the URL that receives the messages")
    parser.add_argument("--key", default=os.environ.get("TIDEWIRE_KEY"), help="a server key, if the server has keys")
    parser.add_argument("--place", type=pathlib.Path, default=pathlib.Path("webhook.place"), help="the file that stores the place")
    return parser.parse_args()


def send(to, message):
    """Sends a message until the webhook accepts it. Drops and reports a message that the webhook refuses permanently (4xx)."""
    pause = 1
    while True:
        request = urllib.request.Request(to, json.dumps(message).encode(), {"Content-Type": "application/json"})
        try:
            urllib.request.urlopen(request, timeout=30).close()
            return
        except urllib.error.HTTPError as refused:
            if 400 <= refused.code < 500 and refused.code not in (408, 425, 429):
                print(f"dropped by {refused.code}: {message}", file=sys.stderr)
                return
            cause = refused
        except (OSError, http.client.HTTPException) as failure:
            cause = failure
        print(f"{to}: {cause}; sending again in {pause} s", file=sys.stderr, flush=True)
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_MAX_SECONDS)


def store(file, place):
    """Replaces the file as a whole, so that a crash leaves the old place or the new one."""
    new = file.with_name(file.name + ".new")
    new.write_text(place)
    os.replace(new, file)


def follow(server, key, file, to):
    """Follows the stream until it ends or the connection breaks."""
    request = urllib.request.Request(f"{server}/v1/changes?types=missed", headers={"Accept": "text/event-stream"})
    # At the first start, the stream starts with posts published from now on.
    if file.exists():
        request.add_header("Last-Event-ID", file.read_text().strip())
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    # A message comes at least every 30 s.
    with urllib.request.urlopen(request, timeout=90) as lines:
        place = None
        for line in lines:
            # The place after a message comes before it. It may be between two readers of a post.
            if line.startswith(b"id: "):
                place = line[len("id: "):].strip().decode()
            elif line.startswith(b"data: "):
                message = json.loads(line[len("data: "):])
                if message["type"] == "missed":
                    send(to, message)
                store(file, place)


def read_problem(refused):
    """Returns the problem document of the server, or an empty one if a proxy answered."""
    try:
        return json.load(refused)
    except ValueError:
        return {}


def main():
    chosen = options()
    while True:
        try:
            follow(chosen.server, chosen.key, chosen.place, chosen.to)
        except urllib.error.HTTPError as refused:
            problem = read_problem(refused)
            if problem.get("code") == "gone":
                print(f"posts up to {problem['oldest']} are no longer known: continuing after them", file=sys.stderr)
                store(chosen.place, str(problem["oldest"]))
            elif refused.code < 500 and refused.code != 429:
                sys.exit(f"{refused.code} {problem.get('code')}: {problem.get('detail')}")
        except (OSError, http.client.HTTPException, ValueError) as cause:
            # The connection may break within a message.
            print(f"{cause!r}: connecting again", file=sys.stderr)
        time.sleep(1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
