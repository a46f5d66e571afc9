"""The export of a hosted feed service: its checked records, each with its place in a file.

A file is JSON Lines. A line is one of these, which covers exports, import files and saved responses of both versions of that service:

    {"type": "activity", "data": {"id", "user_id", "fids", "created_at", ...}}        also "comment", "follow", "reaction", "user", ...
    {"instruction": "add_activities", "feedId": "user:bob", "data": [{"actor", "verb", "object", "foreign_id", "time", "to"}]}
                                                                                      also "follow", "reactions", "users", ...
    {"actor", "verb", "object", ...}, {"feed_id", "target_id"}, {"kind", "activity_id", "user_id"}, or a page of these: {"results": [...]}
"""

import collections
import datetime
import json
import math
import re
import time

from api import EPOCH, SOURCE_ID, is_user

# The groups of feeds: activities of a user, and the activities that a user reads.
USER_GROUP, TIMELINE_GROUP = "user", "timeline"
# The prefixes of the id of a user in the field `actor`: "User:1", "SU:eric".
ACTOR_PREFIXES = ("user:", "User:", "SU:")

TAGS_MAX = 16
# The place of a record, its key, author, feeds and time (microseconds since 1970); the whole record; the reason if it is left out.
Activity = collections.namedtuple("Activity", "place key author feeds at record left_out")
Comment = collections.namedtuple("Comment", "place key author activity parent at record left_out")
Follow = collections.namedtuple("Follow", "place feed target left_out")
# Of other records, only their kind.
Other = collections.namedtuple("Other", "place kind")
# A record that cannot be read, and why.
Wrong = collections.namedtuple("Wrong", "place why")

TIME = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|z|[+-]\d\d:\d\d)?")
ID_RULE = "the id of a user has 1 to 128 of the characters A-Z a-z 0-9 . _ : @ ~ -, and does not begin with tag:, topic: or replies:"


class Unusable(Exception):
    """Why a record cannot be imported. The text begins with the name of the field."""


def records(path, lines):
    """Yields all records of a file, whose lines are bytes."""
    for number, line in enumerate(lines, 1):
        place = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            found = list(_parts(place, _parsed(line)))
        except Unusable as why:
            yield Wrong(place, str(why))
            continue
        for where, make, record in found:
            try:
                yield make(where, record)
            except Unusable as why:
                yield Wrong(where, str(why))


def _parsed(line):
    """Returns a line as JSON. Refuses values that would change silently, or would make a whole request to Tidewire invalid."""
    try:
        text = line.decode()
        document = json.loads(text, object_pairs_hook=_object, parse_float=_number, parse_constant=_number)
        if "\\u" in text:
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Unusable("not Unicode: half of a surrogate pair") from None
    except json.JSONDecodeError as cause:
        raise Unusable(f"not JSON: {cause.msg} at character {cause.pos + 1}") from None
    except (ValueError, RecursionError) as cause:
        raise Unusable(f"not JSON: {cause}") from None
    if not isinstance(document, dict):
        raise Unusable(f"not an object: {shown(document)}")
    return document


def _object(pairs):
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = [name for name, count in collections.Counter(name for name, _ in pairs).items() if count > 1]
        raise ValueError(f"the field {twice[0]!r} is there twice")
    return made


def _number(text):
    if not math.isfinite(float(text)):
        raise ValueError(f"the number {text} is not finite")
    return float(text)


def _parts(place, document):
    """Yields the place of each record of a line, the function that makes it, and its JSON."""
    if "instruction" in document:
        kind, data = _text(document, "instruction"), document.get("data")
        if not isinstance(data, list):
            raise Unusable(f"data: {shown(data)} is not an array")
        for index, record in enumerate(data):
            yield f"{place}: data[{index}]", _of_instruction(kind, document), record
    elif "actor" not in document and isinstance(document.get("results"), list):
        for index, record in enumerate(document["results"]):
            yield f"{place}: results[{index}]", _bare(record), record
    elif "data" in document and "actor" not in document and "kind" not in document:
        makers = {"activity": activity, "comment": comment, "follow": follow}
        kind = _text(document, "type")
        maker = makers.get(kind) or (lambda where, record: Other(where, f"reactions ({_text(record, 'type')})" if kind == "reaction" else kind))
        yield place, _checked(maker, "data"), document["data"]
    else:
        yield place, _bare(document), document


def _checked(make, field):
    """Wraps a function that makes a record, so that it accepts only objects."""

    def checked(place, record):
        if not isinstance(record, dict):
            raise Unusable(f"{field}: {shown(record)} is not an object")
        return make(place, record)

    return checked


def _of_instruction(kind, document):
    if kind == "add_activities":
        feed = _feed(document, "feedId")
        return _checked(lambda place, record: older_activity(place, record, feed), "data")
    if kind == "follow":
        return lambda place, record: Follow(place, _feed(document, "feedId"), _feed({"data": record}, "data"), None)
    return _checked(reaction, "data") if kind == "reactions" else lambda place, record: Other(place, kind)


def _bare(record):
    if isinstance(record, dict):
        if "actor" in record:
            return older_activity
        if "kind" in record:
            return reaction
        if "feed_id" in record or "target_id" in record:
            return lambda place, record: Follow(place, _feed(record, "feed_id"), _feed(record, "target_id"), None)

    def unknown(place, record):
        raise Unusable("neither an activity (actor), nor a follow (feed_id, target_id), nor a reaction (kind), nor a line of an export (type, data)")

    return unknown


def activity(place, record):
    """Returns an activity of an export."""
    fids = record.get("fids")
    if not isinstance(fids, list) or not fids:
        raise Unusable(f"fids: {shown(fids)} is not an array of feeds")
    feeds = [_feed({f"fids[{index}]": fid}, f"fids[{index}]") for index, fid in enumerate(fids)]
    left_out = "activities that are deleted there" if record.get("deleted_at") else None
    if record.get("expires_at") and _time(record, "expires_at") <= time.time() * 1_000_000:
        left_out = left_out or "activities that have expired, left out"
    if record.get("visibility") not in (None, "", "public"):
        # Tidewire would show it to everybody.
        left_out = left_out or "activities that are not public, left out"
    return _activity(place, _text(record, "id"), _user(record, "user_id"), feeds, _time(record, "created_at"), record, left_out)


def older_activity(place, record, feed=None):
    """Returns an activity of the older version, of this feed or of the one from which it comes."""
    actor, to = record.get("actor"), record.get("to") or []
    field = "actor"
    if isinstance(actor, dict):
        # A page with embedded users.
        field, actor = "actor.id", actor.get("id")
    prefix = next((prefix for prefix in ACTOR_PREFIXES if str(actor).startswith(prefix)), "")
    author = _user({field: actor[len(prefix) :] if prefix else actor}, field)
    if not isinstance(to, list):
        raise Unusable(f"to: {shown(to)} is not an array of feeds")
    # Old clients add a signature after the name of a feed.
    targets = [_feed({f"to[{index}]": one.split(" ")[0] if isinstance(one, str) else one}, f"to[{index}]") for index, one in enumerate(to)]
    origin = feed or (_feed(record, "origin") if record.get("origin") else f"{USER_GROUP}:{author}")
    at = _time(record, "time")
    key = record.get("id") and _text(record, "id")
    if not key:
        key = foreign_key(_text(record, "foreign_id"), at)
    return _activity(place, key, author, [origin, *targets], at, record, None)


def foreign_key(foreign_id, at):
    """Returns the key of an activity without an id: that service has one activity for each `foreign_id` and `time`."""
    return f"{foreign_id}@{at}"


def _activity(place, key, author, feeds, at, record, left_out):
    feeds = list(dict.fromkeys(feeds))
    tags = [feed for feed in feeds if feed != f"{USER_GROUP}:{author}"]
    if len(tags) > TAGS_MAX:
        raise Unusable(f"feeds: the activity is in {len(tags)} feeds besides that of its author, and a post has at most {TAGS_MAX} tags")
    return Activity(place, key, author, feeds, at, record, left_out)


def comment(place, record):
    """Returns a comment of an export."""
    left_out = None
    if record.get("deleted_at") or record.get("status") not in (None, "", "active"):
        left_out = "comments that are deleted there"
    if record.get("object_type") != "activity":
        raise Unusable(f"object_type: {shown(record.get('object_type'))} is not 'activity'")
    parent = _text(record, "parent_id") if record.get("parent_id") else None
    where = (_text(record, "object_id"), parent, _time(record, "created_at"))
    return Comment(place, _text(record, "id"), _user(record, "user_id"), *where, record, left_out)


def reaction(place, record):
    """Returns a reaction of the older version: a comment is one of them."""
    kind = _text(record, "kind")
    if kind != "comment":
        return Other(place, f"reactions ({kind})")
    parent = _text(record, "parent") if record.get("parent") else None
    where = (_text(record, "activity_id"), parent, _time(record, "created_at"))
    return Comment(place, _text(record, "id"), _user(record, "user_id"), *where, record, None)


def follow(place, record):
    """Returns a follow of an export."""
    accepted = record.get("status") in (None, "", "accepted")
    return Follow(place, _feed(record, "source_fid"), _feed(record, "target_fid"), None if accepted else "follows that are not accepted, left out")


def _text(record, field):
    value = record.get(field)
    if value is None:
        raise Unusable(f"{field}: missing")
    if not isinstance(value, str) or not value:
        raise Unusable(f"{field}: {shown(value)} is not a text")
    return value


def _user(record, field):
    value = _text(record, field)
    _check_user(value, field, value)
    return value


def _check_user(name, field, value):
    if not SOURCE_ID.fullmatch(name) or not is_user(name):
        raise Unusable(f"{field}: {shown(value)}: {ID_RULE}")


def _feed(record, field):
    value = _text(record, field)
    group, _, name = value.partition(":")
    if not group or not name:
        raise Unusable(f"{field}: {shown(value)} is not a feed, GROUP:NAME")
    # As a tag, or its name as a user.
    if not SOURCE_ID.fullmatch(value):
        raise Unusable(f"{field}: {shown(value)}: the name of a feed has 1 to 128 of the characters A-Z a-z 0-9 . _ : @ ~ -")
    if group in (USER_GROUP, TIMELINE_GROUP):
        _check_user(name, field, value)
    return value


def _time(record, field):
    """Returns microseconds since 1970. A time without an offset is in UTC."""
    value = _text(record, field)
    match = TIME.fullmatch(value)
    try:
        if not match:
            raise ValueError
        seconds, fraction, offset = match.groups()
        zone = "+00:00" if (offset or "Z") in "Zz" else offset
        at = datetime.datetime.fromisoformat(seconds.upper().replace(" ", "T") + zone)
    except ValueError:
        raise Unusable(f"{field}: {shown(value)} is not a time like 2017-07-01T20:30:45.123456") from None
    return (at - EPOCH) // datetime.timedelta(microseconds=1) + int(((fraction or "") + "000000")[:6])


def shown(value):
    """Returns a value for a message, shortened."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
