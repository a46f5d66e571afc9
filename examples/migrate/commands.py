"""The commands of from_redis.py, from_sql.py and from_hosted.py, `import` and `compare`: arguments, reports and exit codes.

Exit codes: 0 on success; 1 if something was refused or differs, or if the command failed, and then the last line says
why; 2 for invalid arguments.
"""

import argparse
import os
import random
import sys
import urllib.parse

from api import LEFT_OUT, Refused, Server, everybody
from compare import Comparison
from prune import KINDS, Pruner
from target import Target

HINT = "Is it the right database, and does the beginning of the script fit it?"


def arguments(description, further=()):
    """Returns the arguments of all scripts. `further` are additional commands of this one."""
    parser = argparse.ArgumentParser(description=description, epilog="Exit code 1 if something was refused, differs or failed.")
    parser.add_argument("command", choices=["import", "compare", *further])
    server_arguments(parser)
    parser.add_argument("--prune", action="store_true", help="import: also remove posts, follows and mutes that the old database no longer has")
    most = "import --prune: remove even more than half of this kind; may be repeated"
    parser.add_argument("--prune-most", choices=KINDS, action="append", default=[], help=most)
    parser.add_argument("--replies", choices=["followed", "all", "none"], help="import: set the rule `replies` of each reader")
    parser.add_argument("--readers", type=whole, default=1_000, help="compare: number of feeds, chosen at random [1000]; 0 for all")
    parser.add_argument("--reader", action="append", help="compare: the feed of this reader instead of random ones; may be repeated")
    parser.add_argument("--depth", type=above_zero, default=100, help="compare: number of entries of each feed [100]")
    return parser


def server_arguments(parser):
    parser.add_argument("--server", type=url, default="http://127.0.0.1:8080", help="the Tidewire server [http://127.0.0.1:8080]")
    parser.add_argument("--key", default=os.environ.get("TIDEWIRE_KEY"), help="a server key, if the server has keys [TIDEWIRE_KEY]")


def url(text):
    """Returns the URL of a server."""
    try:
        parts = urllib.parse.urlsplit(text)
        # Reading the port checks it.
        is_whole = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL like http://127.0.0.1:8080")
    return text


def whole(text):
    """Returns a number that is not negative."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def above_zero(text):
    """Returns a positive number."""
    if not whole(text):
        raise argparse.ArgumentTypeError("0 entries are nothing to compare")
    return int(text)


def run(chosen, source):
    """Runs the command, and exits."""
    if chosen.prune_most and not chosen.prune:
        sys.exit("--prune-most does nothing without --prune")
    server = Server(chosen.server, chosen.key)
    try:
        if chosen.command == "import":
            import_all(chosen, source, Target(server))
        else:
            compare_all(chosen, source, Comparison(server, source, chosen.depth))
    except Refused as refused:
        sys.exit(f"{chosen.server} refused {refused.request}: {refused}")
    except KeyboardInterrupt:
        sys.exit("interrupted: nothing is lost, start it again")


def import_all(chosen, source, target):
    try:
        source.copy_to(target)
        if not any(target.counts.values()) and not target.is_resumed:
            sys.exit(f"nothing was found to import: no follow, no mute, no post. {HINT}")
        for kind in () if target.is_resumed else ("follow", "post"):
            if not any(number for name, number in target.counts.items() if name.startswith(kind)):
                print(f"no {kind} was imported. {HINT}", file=sys.stderr)
        if chosen.replies:
            target.set_replies(source, chosen.replies)
        if chosen.prune:
            Pruner(target, source, chosen.prune_most).prune()
    finally:
        # Also after an interruption.
        code = end(target.counts, "refused", target.refusals)
    sys.exit(code)


def compare_all(chosen, source, comparison):
    if chosen.reader:
        readers = chosen.reader
    elif chosen.readers:
        readers = list(source.readers())
        readers = random.sample(readers, min(chosen.readers, len(readers)))
    else:
        readers, unknown = everybody(comparison.server, source)
        comparison.counts[LEFT_OUT] += unknown
    if not readers:
        sys.exit(f"no reader was found to compare. {HINT}")
    try:
        for reader in readers:
            comparison.compare(reader)
    finally:
        code = end(comparison.counts, "differences", comparison.differences)
    if not comparison.compared:
        sys.exit(f"nothing was compared: of these readers, the old database has no entry of a feed that could be. {HINT}")
    sys.exit(code)


def end(counts, what, lines):
    """Prints the counts. Returns the exit code."""
    count = counts[what]
    for name, number in counts.items():
        if number:
            print(f"{number:>12,}  {name}")
    for line in lines:
        print(f"{what}: {line}")
    if count > len(lines):
        print(f"{what}: {count - len(lines)} more")
    return 1 if count else 0
