"""A Tidewire server: requests to it, and ids, times and posts in the form of its API.

Only the standard library is needed.
"""

import datetime
import hashlib
import http.client
import itertools
import json
import re
import sys
import time
import unicodedata
import urllib.parse

PAGE_MAX = 100
ATTEMPTS_MAX = 60
ATTEMPTS_UNTIL_SAID = 3
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
LEFT_OUT = "users whose id Tidewire does not accept, left out"
SOURCE_ID = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._:@~-]{1,128}")
EXTERNAL_ID = re.compile(r"[A-Za-z0-9._:@~+=-]{1,64}")
# Joiners and variation selectors, which Tidewire removes from names of tags and topics.
FOR_LOOKS = dict.fromkeys([0x200C, 0x200D, *range(0x180B, 0x180E), 0x180F, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])


def is_number(key):
    return re.fullmatch(r"0|[1-9][0-9]{0,19}", key) is not None and int(key) < 1 << 64


def post_id(key):
    """Returns the 64-bit id of a post: a number is its own id. For any other key, Tidewire computes the id in the same way."""
    if is_number(key):
        return key
    return str(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % (7 * 10**18))


def ids_of(key):
    """Returns the ids of a post as POST /v1/posts accepts them. A key that is not a number is its external id, if Tidewire accepts it."""
    is_external = not is_number(key) and EXTERNAL_ID.fullmatch(key)
    return {"id": post_id(key), **({"external_id": key} if is_external else {})}


def time_of(microseconds):
    """Returns a time as the API writes it, from microseconds since 1970."""
    at = EPOCH + datetime.timedelta(microseconds=int(microseconds))
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def microseconds_of(text):
    """Returns the microseconds since 1970 of a time of the API."""
    seconds, _, fraction = text.rstrip("Z").partition(".")
    at = datetime.datetime.strptime(seconds, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    return (at - EPOCH) // datetime.timedelta(microseconds=1) + int((fraction + "000000")[:6])


def batches(items, size):
    """Cuts an iterable into lists of at most `size`."""
    items = iter(items)
    while batch := list(itertools.islice(items, size)):
        yield batch


def post_path(name):
    """Returns the path of a post, by its id or `ext:` and its external id. Raises ValueError if it is neither."""
    is_external = name.startswith("ext:") and EXTERNAL_ID.fullmatch(name.removeprefix("ext:"))
    return f"/v1/posts/{name if is_external else int(name)}"


def user_path(*parts):
    """Returns a path below the path of a user."""
    return "/v1/users/" + "/".join(urllib.parse.quote(part, safe="") for part in parts)


def is_source(text):
    """Returns true if Tidewire accepts this id of a user. It accepts tags and topics in any script, so the server itself checks their names."""
    return SOURCE_ID.fullmatch(text) is not None or text.startswith(("tag:", "topic:"))


def form(source):
    """Returns an id as in responses of Tidewire: a tag in the form NFKC_Casefold, a topic in the form NFC."""
    group, _, name = source.partition(":")
    if group == "topic":
        return f"topic:{unicodedata.normalize('NFC', name.translate(FOR_LOOKS))}"
    if group != "tag":
        return source
    name = "".join(map(_folded, unicodedata.normalize("NFD", name.translate(FOR_LOOKS))))
    return f"tag:{unicodedata.normalize('NFC', name)}"


def _folded(character):
    text, before = unicodedata.normalize("NFKC", character), None
    while text != before:
        text, before = unicodedata.normalize("NFKC", text.casefold()), text
    return text


def is_user(source):
    """Returns false for a tag, a topic, and the replies to a post."""
    return not source.startswith(("tag:", "topic:", "replies:"))


def content(post):
    """Returns the parts of a post that must be the same before and after."""
    return {
        "author": post["author"],
        "published_at": microseconds_of(post["published_at"]),
        "body": post["body"],
        "tags": sorted({form(f"tag:{tag}") for tag in post.get("tags") or []}),
        "reply_to": post.get("reply_to"),
    }


def everybody(server, source):
    """Returns the users of the old database and all users linked to them in Tidewire, and the number of ids that Tidewire does not accept."""
    # The old database no longer knows a user whose last row is gone.
    found = dict.fromkeys(source.readers())
    users = [user for user in found if is_source(user)]
    unknown = len(found) - len(users)
    # The list grows while it is walked.
    for user in users:
        for side in ("following", "followers"):
            for item in server.pages(user_path(user, side), PAGE_MAX, "cursor"):
                if item["id"] not in found and is_user(item["id"]):
                    found[item["id"]] = None
                    users.append(item["id"])
    return users, unknown


class Refused(Exception):
    """A request that the server refused, and would refuse again."""

    def __init__(self, request, status, problem):
        super().__init__(f"{status} {problem.get('code')}: {problem.get('detail')}")
        self.request, self.problem = request, problem


class Server:
    """A Tidewire server. Waits while the server is busy, and reconnects after a lost connection."""

    def __init__(self, url, key, timeout=60):
        self._where, self._url, self._timeout = url, urllib.parse.urlsplit(url), timeout
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._connection = None

    def ask(self, method, path, document=None):
        """Returns the response as JSON, or None without a body. Raises Refused. Exits if the server cannot be reached, or refuses the key."""
        body, request, why = None if document is None else json.dumps(document).encode(), f"{method} {path}", ""
        for attempt in range(ATTEMPTS_MAX):
            if attempt == ATTEMPTS_UNTIL_SAID:
                print(f"waiting for {self._where} to answer {request}: {why}", file=sys.stderr, flush=True)
            try:
                status, wait, text = self._send(method, path, body)
            except (OSError, http.client.HTTPException) as cause:
                self._connection, why = None, f"{type(cause).__name__}: {cause}"
                # An idle connection may have been closed: the first retry needs no pause.
                time.sleep(min(attempt, 5))
                continue
            answer = self._read(request, status, text)
            if status < 400:
                return answer
            if status in (401, 403):
                sys.exit(f"{self._where} refused {request}: {status} {answer.get('detail')}: TIDEWIRE_KEY has to be a server key with the scope all")
            if wait is None:
                raise Refused(request, status, answer)
            why = answer.get("detail")
            time.sleep(min(int(wait), 10))
        sys.exit(f"no answer of {self._where} to {request} after {ATTEMPTS_MAX} attempts: {why}")

    def once(self, method, path, document):
        """Sends a request once. Returns the status and the text of the response. Raises OSError or HTTPException without a response."""
        try:
            status, _, text = self._send(method, path, None if document is None else json.dumps(document).encode())
        except (OSError, http.client.HTTPException):
            self._connection = None
            raise
        return status, text.decode(errors="replace")

    def _read(self, request, status, text):
        try:
            return json.loads(text) if text else None
        except ValueError:
            sys.exit(f"{self._where} is not a Tidewire server: it answered {request} with {status} {text[:200].decode(errors='replace')!r}")

    def _send(self, method, path, body):
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(self._url.netloc, timeout=self._timeout)
        self._connection.request(method, self._url.path.rstrip("/") + path, body, self._headers)
        answer = self._connection.getresponse()
        return answer.status, answer.getheader("Retry-After"), answer.read()

    def pages(self, path, limit, cursor):
        """Yields all items of a list; `cursor` names the parameter for the `next` of a page."""
        page = self.ask("GET", f"{path}?limit={limit}")
        while True:
            yield from page["items"]
            if page["next"] is None:
                return
            page = self.ask("GET", f"{path}?limit={limit}&{cursor}={page['next']}")
