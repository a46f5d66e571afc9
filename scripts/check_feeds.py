#!/usr/bin/env python3
"""Compares a server's feeds with a naive computation.

Publishes random posts to a server with an imported follow file, each with wait=delivered. Then it pages the feeds
of random readers to their end and compares each with all posts of all followed sources and of the reader, sorted.
Half of the readers are awake while the posts are published; the other half wake for the comparison.

    tidewire import follows FILE
    scripts/check_feeds.py FILE

Exits with 1 if any feed differs.
"""

import argparse
import collections
import datetime
import gzip
import http.client
import json
import random
import sys
import urllib.parse


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("follows", help="the imported file: `follower source` in each line, .gz or plain")
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    parser.add_argument("--posts", type=int, default=1000)
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--deletes", type=int, default=50, help="number of posts to delete before the comparison")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def read_follows(path):
    following = collections.defaultdict(set)
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt") as lines:
        for line in lines:
            if not line.startswith("#") and line.strip():
                follower, source = line.replace(",", " ").split()
                following[follower].add(source)
    return following


class Client:
    def __init__(self, server):
        self.connection = http.client.HTTPConnection(urllib.parse.urlparse(server).netloc, timeout=60)

    def call(self, method, path, body=None):
        headers = {"Content-Type": "application/json"} if body is not None else {}
        self.connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = self.connection.getresponse()
        text = response.read()
        if response.status >= 300:
            sys.exit(f"{method} {path}: {response.status} {text.decode()}")
        return json.loads(text) if text else None


def whole_feed(client, reader, limit):
    ids, path = [], f"/v1/users/{reader}/feed?limit={limit}"
    while True:
        page = client.call("GET", path)
        assert not page["partial"], page["partial"]
        ids += [item["post"]["id"] for item in page["items"]]
        if page["next"] is None:
            return ids
        path = f"/v1/users/{reader}/feed?limit={limit}&before={page['next']}"


def main():
    options = arguments()
    draw = random.Random(options.seed)
    following = read_follows(options.follows)
    readers = draw.sample(sorted(following), options.readers)
    followers = collections.Counter(source for sources in following.values() for source in sources)
    # Half of the posts are by any author, half by authors whom a compared reader follows, so that feeds are not empty.
    anyone = sorted(followers)
    followed = sorted({source for reader in readers for source in following[reader]})
    client = Client(options.server)
    for reader in readers[::2]:
        client.call("GET", f"/v1/users/{reader}/feed")

    posts = []
    for number in range(options.posts):
        author = draw.choice(anyone if number % 2 else followed)
        post = client.call("POST", "/v1/posts?wait=delivered", {"author": author, "body": {"number": number}})
        published_at = datetime.datetime.fromisoformat(post["published_at"])
        posts.append((published_at, int(post["id"]), author))
    for deleted in draw.sample(range(len(posts)), options.deletes):
        client.call("DELETE", f"/v1/posts/{posts[deleted][1]}")
        posts[deleted] = None
    posts = sorted((post for post in posts if post), reverse=True)

    differing, entries = 0, 0
    for reader in readers:
        expected = [str(post) for _, post, author in posts if author in following[reader] or author == reader]
        shown = whole_feed(client, reader, draw.randint(1, 30))
        entries += len(shown)
        if shown != expected:
            differing += 1
            if differing <= 10:
                print(f"the feed of {reader} differs: {len(shown)} entries shown, {len(expected)} expected")
    stats = client.call("GET", "/v1/stats")
    print(
        f"{options.readers} feeds with {entries} entries compared, {differing} differ "
        f"({stats['edges']} edges, {stats['posts']} posts, {stats['deliveries']} deliveries, {stats['active']} active)"
    )
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
