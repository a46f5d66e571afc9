#!/usr/bin/env python3
"""Moves feeds from the export of a hosted feed service to Tidewire, and compares them.

    python3 examples/migrate/from_hosted.py import --export export.jsonl
    python3 examples/migrate/from_hosted.py compare --export export.jsonl

It reads files of JSON Lines, in the format of the activity feeds of GetStream.io. It needs no other packages. hosted.py has the names of
the groups of feeds. docs/migrate-from-hosted.md is the guide.
"""

import collections
import functools
import json
import re
import shlex
import subprocess
import sys

from api import form, ids_of, post_id, time_of
from commands import arguments, run
from compare import OldFeed
from hosted import TIMELINE_GROUP, USER_GROUP, Activity, Comment, Follow, Wrong, records

# Fields that the body of a post omits: the post itself has them, or that service adds them to its responses.
NOT_IN_BODY = {"user_id", "actor", "fids", "to", "origin", "time", "created_at", "updated_at"}
NOT_IN_BODY |= {"latest_reactions", "latest_reactions_extra", "own_reactions", "reaction_counts"}
# Features that only that service has, by the field that requests them.
ONLY_THERE = {
    "expires_at": "activities that expire there, but not in Tidewire",
    "parent_id": "activities that share another one, imported as posts of their own",
}


@functools.cache
def tag_of(feed):
    """Returns the name of the tag that has the activities of a feed."""
    return form(f"tag:{feed}").removeprefix("tag:")


def body_of(record):
    return {name: value for name, value in record.items() if value is not None and name not in NOT_IN_BODY}


def content_of(record):
    """Returns the parts that are the same in all pages with this activity or comment."""
    return {**record._asdict(), "place": None, "feeds": None, "record": body_of(record.record)}


def tagging(activity):
    """Returns the feeds of an activity that are tags of its post: all but that of its author."""
    return [feed for feed in activity.feeds if feed != f"{USER_GROUP}:{activity.author}"]


def post_of(activity):
    """Returns an activity as POST /v1/posts accepts it. Each of its feeds except that of its author is a tag."""
    own, author, body = f"{USER_GROUP}:{activity.author}", activity.author, body_of(activity.record)
    if own not in activity.feeds:
        # Followers of an author get all posts of the author, and this one is not for them.
        author, body["actor"] = activity.feeds[0], author
    return {
        **ids_of(activity.key),
        "author": author,
        "published_at": time_of(activity.at),
        "body": body,
        "tags": [tag_of(feed) for feed in tagging(activity)],
    }


def comment_key(comment_id):
    """Returns the key of a comment's post. A comment and an activity may have the same id."""
    return f"comment:{comment_id}"


def reply_of(comment, parent):
    """Returns a comment as POST /v1/posts accepts it: a reply to the activity, or to the comment `parent`."""
    return {
        **ids_of(comment_key(comment.key)),
        "author": comment.author,
        "published_at": time_of(comment.at),
        "body": body_of(comment.record),
        "reply_to": post_id(comment_key(parent) if parent else comment.activity),
    }


def sources_of(feed):
    """Returns the sources that a reader follows in Tidewire to get this whole feed: its user, and the tag of posts that others put into it."""
    group, _, name = feed.partition(":")
    return [name, f"tag:{tag_of(feed)}"] if group == USER_GROUP else [f"tag:{tag_of(feed)}"]


class HostedSource:
    """The export. It is read completely before the first write; an activity takes about 2 KB of memory."""

    # A timeline has all activities of the feeds that it follows, so any other entry in Tidewire is a difference.
    shows_all = True

    def __init__(self, files, timelines, replies):
        """`timelines` is the command that reads a timeline from the service; without it, timelines are computed from the export."""
        self.timelines, self.replies = shlex.split(timelines or ""), replies
        self.activities, self.comments = {}, {}
        # The feeds that each timeline follows.
        self.follows = collections.defaultdict(dict)
        self.wrong, self.counts = [], collections.Counter()
        # The activity or comment of each post id, and the feed of each tag.
        self._of_post, self._of_tag = {}, {}
        for file in files:
            self._read(file)
        # The activities of each feed, newest first; those of the same time by the id of the post, as in Tidewire.
        self.by_feed = collections.defaultdict(list)
        for activity in sorted(self.activities.values(), key=lambda one: (one.at, int(post_id(one.key))), reverse=True):
            for feed in () if activity.left_out else activity.feeds:
                self.by_feed[feed].append(activity)

    def _read(self, file):
        try:
            with open(file, "rb") as lines:
                for record in records(file, lines):
                    self._add(record)
        except OSError as cause:
            sys.exit(f"--export {file}: {cause.strerror}")

    def _add(self, record):
        match record:
            case Activity():
                self._add_activity(record)
            case Comment():
                self._add_once(self.comments, record, comment_key(record.key))
            case Follow(feed=feed, target=target, left_out=left_out):
                group, _, name = feed.partition(":")
                if group != TIMELINE_GROUP:
                    left_out = left_out or f"follows by feeds that are not a {TIMELINE_GROUP}, left out"
                if left_out:
                    self.counts[left_out] += 1
                else:
                    self.follows[name][target] = None
            case Wrong(place=place, why=why):
                self.wrong.append((place, why))
            case _:
                self.counts[f"other records, left out: {record.kind}"] += 1

    def _add_activity(self, activity):
        for feed in () if activity.left_out else tagging(activity):
            first = self._of_tag.setdefault(tag_of(feed), feed)
            if first != feed:
                why = f"{feed!r} and {first!r} would be one tag, since tags are compared without case: rename one"
                self.wrong.append((activity.place, why))
                return
        self._add_once(self.activities, activity, activity.key)

    def _add_once(self, all_of_kind, record, key):
        first = self._of_post.setdefault(post_id(key), (key, record.place))
        if first[0] != key:
            why = f"id: the post would have the id {post_id(key)}, which that of {first[1]} has: give one of them another id"
            self.wrong.append((record.place, why))
        elif record.key not in all_of_kind:
            all_of_kind[record.key] = record
        elif content_of(was := all_of_kind[record.key]) != content_of(record):
            self.wrong.append((record.place, f"id: {was.place} has the same id, but another content"))
        else:
            # A page of another feed has it too.
            self.counts["records that are there more than once"] += 1
            if isinstance(record, Activity):
                all_of_kind[record.key] = was._replace(feeds=list(dict.fromkeys([*was.feeds, *record.feeds])))

    def copy_to(self, target):
        target.name_of_post = lambda key: f"{self._of_post[key][1]}: post {key}"
        # Users may have deleted posts since the export.
        target.keeps_deleted = True
        for place, why in self.wrong:
            target.refuse(place, why)
        target.counts.update(self.counts)
        target.follow(self._edges())
        target.publish(map(post_of, self._published(self.activities, target.counts)))
        target.publish(self._replies(target.counts))
        left_out = [record for record in self.activities.values() if record.left_out]
        target.delete(post_id(record.key) for record in left_out)
        target.delete(post_id(comment_key(comment.key)) for comment in self.comments.values() if comment.left_out)
        self._count_what_is_lost(target.counts)
        for reader in self.readers():
            target.set_rules(reader, {"replies": self.replies, "show_own": self._follows_itself(reader)})

    def _edges(self):
        for reader in self._timelines():
            sources = {source: None for feed in self._feeds_of(reader) for source in self._sources_of(feed)}
            # Tags that no activity has are left out.
            yield from ((reader, source) for source in sources if source != reader and (not source.startswith("tag:") or source[4:] in self._of_tag))

    def _sources_of(self, feed):
        """Returns the same as sources_of, without a tag of another feed whose name differs only in case."""
        return [source for source in sources_of(feed) if not source.startswith("tag:") or self._of_tag.get(tag_of(feed), feed) == feed]

    def _published(self, records, counts):
        for record in sorted(records.values(), key=lambda record: record.at):
            if record.left_out:
                counts[record.left_out] += 1
            else:
                yield record

    def _replies(self, counts):
        for comment in self._published(self.comments, counts):
            activity, parent = self.activities.get(comment.activity), self.comments.get(comment.parent)
            if activity is None or activity.left_out:
                counts["comments on activities that are not imported, left out"] += 1
                continue
            if comment.parent and (parent is None or parent.left_out):
                parent = None
                counts["answers to comments that are not imported, as replies to the activity"] += 1
            yield reply_of(comment, parent and parent.key)

    def _count_what_is_lost(self, counts):
        for activity in self.activities.values():
            if activity.left_out:
                continue
            for field, what in ONLY_THERE.items():
                counts[what] += bool(activity.record.get(field))
            at = str(activity.record.get("time") or activity.record.get("created_at"))
            counts["times of more than six decimal digits, cut"] += bool(re.search(r"\.\d{6}\d*[1-9]", at))
            own, author = f"{USER_GROUP}:{activity.author}", activity.author
            counts["activities in no feed of their actor, with the feed as the author"] += own not in activity.feeds
            if own in activity.feeds and not self._follows_itself(author) and set(activity.feeds) & set(self._feeds_of(author)):
                counts["own activities that come by another feed, which Tidewire does not show"] += 1

    def _feeds_of(self, reader):
        """Returns the feeds whose activities are in the timeline of a reader, including the timeline itself."""
        return [*self.follows.get(reader, ()), f"{TIMELINE_GROUP}:{reader}"]

    def _follows_itself(self, reader):
        return f"{USER_GROUP}:{reader}" in self.follows.get(reader, ())

    def _timelines(self):
        targets = (feed.partition(":") for feed in self.by_feed)
        return dict.fromkeys([*self.follows, *(name for group, _, name in targets if group == TIMELINE_GROUP)])

    def readers(self):
        """Returns all users with a timeline or a post."""
        authors = (post_of(activity)["author"] for activity in self._published(self.activities, collections.Counter()))
        commenters = (comment.author for comment in self.comments.values() if not comment.left_out)
        return list(dict.fromkeys([*self._timelines(), *authors, *commenters]))

    def following(self, user):
        return {source for feed in self._feeds_of(user) for source in self._sources_of(feed)} - {user}

    def muted(self, user):
        return set()

    def live_ids(self):
        for activity in self._published(self.activities, collections.Counter()):
            yield post_id(activity.key)
        for reply in self._replies(collections.Counter()):
            yield reply["id"]

    def feed(self, reader, depth, counts):
        """Returns the timeline as that service shows it: the newest activities of all followed feeds."""
        shown = self._asked(reader, depth) if self.timelines else self._computed(reader, depth)
        return OldFeed([(post, None, at) for at, post in shown], shown[-1][0] if len(shown) >= depth else None)

    def _computed(self, reader, depth):
        newest = {activity.key: activity for feed in self._feeds_of(reader) for activity in self.by_feed.get(feed, ())[:depth]}
        posts = [(activity.at, post_of(activity)) for activity in newest.values()]
        return sorted(posts, key=lambda shown: (shown[0], int(shown[1]["id"])), reverse=True)[:depth]

    def _asked(self, reader, depth):
        words = [*self.timelines, f"{TIMELINE_GROUP}:{reader}", str(depth)]
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        except OSError as cause:
            sys.exit(f"--timelines {' '.join(words)!r} cannot be run: {cause}")
        if done.returncode:
            sys.exit(f"{' '.join(words)} ended with {done.returncode}")
        found = list(records(" ".join(words), done.stdout.splitlines()))
        for record in found:
            if not isinstance(record, Activity):
                sys.exit(f"{record.place}: {record.why if isinstance(record, Wrong) else 'not an activity'}")
        return [(activity.at, post_of(activity)) for activity in found[:depth]]


def write_all(files):
    """Prints each record as a write for both.py. Returns the exit code, which is 1 if a record could not be read."""
    code = 0
    for file in files:
        with open(file, "rb") as lines:
            for record in records(file, lines):
                match record:
                    case Activity(left_out=None):
                        # Activities in the timeline itself come by a tag, which its reader must follow.
                        for feed in record.feeds:
                            if feed.startswith(f"{TIMELINE_GROUP}:"):
                                print(json.dumps({"follow": [feed.partition(":")[2], f"tag:{feed}"]}))
                        print(json.dumps({"publish": post_of(record)}))
                    case Activity():
                        print(json.dumps({"delete": post_id(record.key)}))
                    case Comment(left_out=None):
                        print(json.dumps({"publish": reply_of(record, record.parent)}))
                    case Comment():
                        print(json.dumps({"delete": post_id(comment_key(record.key))}))
                    case Follow(feed=feed, target=target, left_out=None) if feed.startswith(f"{TIMELINE_GROUP}:"):
                        reader = feed.partition(":")[2]
                        for source in sources_of(target):
                            if source == reader:
                                print(json.dumps({"rules": [reader, {"show_own": True}]}))
                            else:
                                print(json.dumps({"follow": [reader, source]}))
                    case Wrong(place=place, why=why):
                        print(f"{place}: {why}", file=sys.stderr)
                        code = 1
    return code


if __name__ == "__main__":
    parser = arguments(__doc__.splitlines()[0], ["writes"])
    parser.add_argument("--export", action="append", required=True, help="a file of the export; may be repeated. writes: records as input of both.py")
    parser.add_argument("--timelines", help="compare: a command that prints a timeline of the service, given its feed and a number of activities")
    chosen = parser.parse_args()
    if chosen.command == "writes":
        sys.exit(write_all(chosen.export))
    source = HostedSource(chosen.export, chosen.timelines, chosen.replies or "none")
    # The rules are set with those of own posts.
    chosen.replies = None
    if chosen.command == "compare" and source.wrong:
        print(f"{len(source.wrong):,} records of the export cannot be read: import names them", file=sys.stderr)
    run(chosen, source)
