"""Compares the feeds of the old application with those of Tidewire."""

import collections
import itertools

from additions import Additions, changes
from api import LEFT_OUT, PAGE_MAX, Refused, is_source, microseconds_of, time_of, user_path

DIFFERENCES_SHOWN_MAX = 50

# The newest repost of an entry by one user. `at` is in microseconds.
Repost = collections.namedtuple("Repost", "id at")


class OldFeed:
    """The feed that the old application shows."""

    def __init__(self, posts, floor):
        """`posts` has triples, newest first: a post as POST /v1/posts accepts it, the original if it is a repost, and the microseconds of its
        place. Entries older than the floor are not known, if there is one. Reposts of one post become one entry, placed as the newest.
        """
        entries = {}
        for post, original, at in posts:
            shown = original or post
            entry = entries.setdefault(shown["id"], {"post": shown, "at": at, "reason": post["id"], "reposts": {}})
            if original:
                entry["reposts"].setdefault(post["author"], Repost(post["id"], at))
        self.entries, self.floor = list(entries.values()), floor


def entry_of(item, reader):
    """Returns the entry of a reader's feed in the compared form. The newest post or repost that brings it decides its place."""
    post = item["post"]
    reposts = {repost["user"]: Repost(repost["post"], microseconds_of(repost["at"])) for repost in item["reposts"]}
    reasons = list(reposts.values())
    # Only its reposts bring a post whose author the reader does not follow.
    if not reposts or post["author"] in (reader, *item["via"]):
        reasons.append(Repost(post["id"], microseconds_of(post["published_at"])))
    newest = max(reasons, key=lambda reason: (reason.at, int(reason.id)))
    return {"post": post, "at": newest.at, "reason": newest.id, "reposts": reposts}


def place_of(entry):
    """Returns the sort key of the entries of a feed: the greatest comes first."""
    return entry["at"], int(entry["reason"])


class Comparison:
    """Compares feeds entry by entry."""

    def __init__(self, server, source, depth):
        self.server, self.source, self.depth = server, source, depth
        self.counts = collections.Counter()
        self.differences = []
        # Entries of old feeds: without any, nothing was compared.
        self.compared = 0

    def compare(self, reader):
        """Compares the newest entries of one feed."""
        if not is_source(reader):
            self.counts[LEFT_OUT] += 1
            return
        try:
            self._compare(reader)
        except Refused as refused:
            self._differ(reader, refused)

    def _compare(self, reader):
        # This omits and counts entries that the application must not show.
        old = self.source.feed(reader, self.depth, self.counts)
        new = [entry_of(item, reader) for item in self._feed(reader)]
        # Entries at or below the end of a cut feed are incomplete.
        floors = [old.floor, min(entry["at"] for entry in new) if len(new) == self.depth else None]
        floor = max((floor for floor in floors if floor is not None), default=None)

        def within(feed):
            return {entry["post"]["id"]: entry for entry in feed if floor is None or entry["at"] > floor}

        before, after = within(old.entries), within(new)
        self.counts["entries below the end of the old feed, not compared"] += sum(floor is not None and entry["at"] <= floor for entry in new)
        self.counts["readers"] += 1
        self.compared += len(before)
        self._check_order(reader, before, new)
        added = {key: entry for key, entry in after.items() if key not in before}
        further = {key: self._further_reposts(entry, after[key], floor) for key, entry in before.items() if key in after}
        additions = None
        if not self.source.shows_all:
            additions = Additions(self.source, reader, added.values(), {repost.id for reposts in further.values() for repost in reposts.values()})
        for key, entry in before.items():
            if key in after:
                self._compare_entry(reader, entry, after[key], further[key], additions)
            else:
                self._differ(reader, f"{key} of {entry['post']['author']} is missing")
        for key, entry in added.items():
            reason, wrong = additions.check(entry) if additions else (None, "")
            if reason:
                self.counts[reason] += 1
            else:
                self._differ(reader, f"{key} of {entry['post']['author']} was not there before{wrong and ': '}{wrong}")

    def _further_reposts(self, was, now, floor):
        """Returns the reposts that an entry did not have before. A query that shows all does not know those below the floor."""
        further = {user: repost for user, repost in now["reposts"].items() if was["reposts"].get(user) != repost}
        if not self.source.shows_all or floor is None:
            return further
        return {user: repost for user, repost in further.items() if repost.at > floor}

    def _compare_entry(self, reader, was, now, further, additions):
        wrong, right = changes(was["post"], now["post"]), []
        for user, repost in further.items():
            problem = additions.repost_problem(now, user, repost) if additions else f"repost {repost.id} of {user} was not there before"
            if problem:
                wrong.append(problem)
            else:
                right.append(repost.at)
        for user, repost in was["reposts"].items():
            # A newer repost of the same user replaces it.
            found = now["reposts"].get(user)
            if found is None or (found.id != repost.id and found.at < repost.at):
                wrong.append(f"repost {repost.id} of {user} is missing")
        place = max([was["at"], *right])
        if place != now["at"]:
            wrong.append(f"place was {time_of(place)}, is {time_of(now['at'])}")
        if wrong:
            self._differ(reader, f"{now['post']['id']}: {'; '.join(wrong)}")
        elif place != was["at"]:
            self.counts["entries at the place of a repost that was not pushed"] += 1
        else:
            self.counts["entries that are equal"] += 1

    def _feed(self, reader):
        # Reads a feed again if a page is partial.
        for _ in range(10):
            items, is_partial, before = [], False, ""
            while len(items) < self.depth and before is not None:
                # A page may be short, although more follow.
                limit = min(PAGE_MAX, self.depth - len(items))
                page = self.server.ask("GET", f"{user_path(reader, 'feed')}?limit={limit}{before}")
                items += page["items"]
                is_partial |= bool(page["partial"])
                before = None if page["next"] is None else f"&before={page['next']}"
            if not is_partial:
                break
        return items

    def _check_order(self, reader, before, new):
        """Checks the order of the new feed. Entries of the same time are ordered by id, whatever the old order was."""
        by_place = sorted(before.values(), key=place_of, reverse=True)
        ties = sum(one != other for one, other in zip(before.values(), by_place))
        self.counts["entries of the same time in another order"] += ties
        for above, below in itertools.pairwise(new):
            if place_of(above) <= place_of(below):
                self._differ(reader, f"the order is wrong: {above['post']['id']} is directly above {below['post']['id']}, which is newer")
                break
        twice = [key for key, count in collections.Counter(entry["post"]["id"] for entry in new).items() if count > 1]
        if twice:
            self._differ(reader, f"posts are there more than once: {', '.join(twice)}")

    def _differ(self, reader, what):
        self.counts["differences"] += 1
        if len(self.differences) < DIFFERENCES_SHOWN_MAX:
            self.differences.append(f"feed of {reader}: {what}")
