"""redis-py as it is released, against a server. Arguments: PORT [KEY]."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

port, key, *_ = *sys.argv[1:], None
# Seconds until a missing reply or message is an error.
DEADLINE = 30


def connected(key, **options):
    return redis.Redis(host="127.0.0.1", port=int(port), password=key, decode_responses=True, socket_timeout=DEADLINE, **options)


def equal(what, found, expected):
    if found != expected:
        raise SystemExit(f"{what}: expected {expected!r}, found {found!r}")


def refused(error, text, command):
    try:
        reply = command()
    except error as cause:
        return equal("text of an error", str(cause)[: len(text)], text)
    raise SystemExit(f"expected {error.__name__}, found {reply!r}")


def subscribed(pubsub, channel):
    """Subscribes to a channel, and returns `hello` with a function that returns the next message."""

    def received(kind="message"):
        message = pubsub.get_message(timeout=DEADLINE) or {}
        equal("channel and kind of a message", (message.get("channel"), message.get("type")), (channel, kind))
        return message["data"] if kind == "subscribe" else json.loads(message["data"])

    pubsub.subscribe(channel)
    equal("number of channels", received("subscribe"), 1)
    return received(), received


def check(client, is_resp3):
    def command(*words):
        return json.loads(client.execute_command(*words))

    def post(text):
        return command("FEED.POST", "bob", json.dumps({"text": text}), "WAIT")

    def posts(count):
        return [item["post"] for item in command("FEED.GET", "ann", "COUNT", count)["items"]]

    command("FEED.FOLLOW", "ann", "bob")
    newest = post("hi")
    equal("newest entry", posts(1), [newest])
    equal("map of RESP3", isinstance(client.execute_command("FEED.GET", "ann", "AS", "ARRAY"), dict), is_resp3)

    pipeline = client.pipeline(transaction=False)
    for nth in range(100):
        pipeline.execute_command("FEED.POST", "bob", nth, "WAIT")
    published = [json.loads(reply) for reply in pipeline.execute()]
    equal("replies of a pipeline", [post["body"] for post in published], list(range(100)))
    equal("posts of a pipeline", posts(100), published[::-1])
    refused(redis.ResponseError, "INVALID_PARAMETER ", lambda: posts(101))
    with ThreadPoolExecutor(8) as threads:
        equal("pages read at once", list(threads.map(posts, [1] * 200)), [published[-1:]] * 200)

    with client.pubsub() as pubsub:
        hello, received = subscribed(pubsub, "feed:ann")
        first = post("first")
        message = received()
        equal("message", message["item"]["post"], first)
    missed = [post("second"), post("third")]
    with client.pubsub() as pubsub:
        resumed, received = subscribed(pubsub, f"feed:ann {hello['epoch']}:{message['seq']}")
        equal("hello", (hello["type"], hello["recovered"], resumed["recovered"]), ("hello", False, True))
        # Nothing else comes before a later post.
        missed.append(post("fourth"))
        equal("messages after the position", [received()["item"]["post"] for _ in missed], missed)


for name, options in ("default protocol", {}), ("RESP2", {"protocol": 2}), ("RESP3", {"protocol": 3}):
    with connected(key, **options) as client:
        check(client, name != "RESP2")
    if key:
        # By default this client tries a wrong key ten more times.
        with connected("wrong", retry=Retry(NoBackoff(), 0), **options) as stranger:
            refused(redis.AuthenticationError, "", stranger.ping)
    print(f"redis-py {redis.__version__}, {name}: ok")
