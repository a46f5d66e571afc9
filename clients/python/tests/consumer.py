"""A consumer of changes that may be killed at any moment: it stores each change, then its place."""

from __future__ import annotations

import sys
from pathlib import Path

from tidewire import PublishedChange, Tidewire


def main(url: str, folder: Path) -> None:
    place = folder / "place"
    after = place.read_text() if place.exists() else 0
    with Tidewire(url, retries=100, retry_wait_max=5) as client, (folder / "seen").open("a") as seen:
        for change in client.changes(after=after, types=["published"]):
            if isinstance(change, PublishedChange):
                seen.write(f"{change.sequence} {change.post.id}\n")
                seen.flush()
            new = place.with_suffix(".new")
            new.write_text(change.place)
            new.replace(place)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
