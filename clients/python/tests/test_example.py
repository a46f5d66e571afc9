"""The example, as it is printed."""

from __future__ import annotations

import ast
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from scripted import POST, Said, Scripted, problem
from server import Server, wait_for

from tidewire import Tidewire

EXAMPLE = Path(__file__).resolve().parents[1] / "examples/push_service.py"

CONSUMER = Path(os.environ.get("TIDEWIRE_EXAMPLES", "")) / "tag_counts.py"


def test_the_service_publishes_reads_and_pushes_what_is_missed_once_it_is_killed_too(tmp_path: Path) -> None:
    said: list[str] = []
    threads: dict[int, threading.Thread] = {}
    with Server("--active-window", "1s") as server, Tidewire(server.url) as client:

        def start() -> subprocess.Popen[str]:
            environment = {**os.environ, "TIDEWIRE_SERVER": server.url, "PUSH_PLACE": str(tmp_path / "place")}
            words = [sys.executable, "-W", "error", str(EXAMPLE)]
            service = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            reading = threading.Thread(target=lambda: said.extend(service.stdout or []))
            reading.start()
            threads[service.pid] = reading
            return service

        def stop(service: subprocess.Popen[str]) -> None:
            assert service.stdin is not None and service.stdout is not None
            service.kill()
            service.wait()
            threads[service.pid].join()
            service.stdin.close()
            service.stdout.close()

        def write(service: subprocess.Popen[str], line: str) -> None:
            assert service.stdin is not None
            service.stdin.write(f"{line}\n")
            service.stdin.flush()

        def sleeps() -> bool:
            return not client.get_user("ann").active

        service = start()
        try:
            wait_for((tmp_path / "place").exists, "the first place in the stream")
            write(service, "")
            write(service, "one")
            write(service, "")
            wait_for(lambda: "ann reads bob: one\n" in said, "the feed")
            wait_for(sleeps, "the sleep of ann")
            write(service, "two")
            wait_for(lambda: any(line.startswith("push to ann") and line.endswith("bob: two\n") for line in said), "the push")
        finally:
            stop(service)
        post = client.publish("bob", {"text": "three"})
        service = start()
        try:
            wait_for(lambda: f"push to ann (ann/{post.id}): bob: three\n" in said, "the push of what was published meanwhile")
        finally:
            stop(service)
    assert not any("push to ann" in line and line.endswith("one\n") for line in said)


def test_the_service_ends_with_what_it_cannot_mend_though_it_waits_for_input(tmp_path: Path) -> None:
    rules = {"show_own": False, "replies": "all", "reposts": True, "per_source_max": None, "notify": True}
    with Scripted(Said(200, {"created": True}), Said(200, rules), problem(403, "forbidden")) as scripted:
        environment = {**os.environ, "TIDEWIRE_SERVER": scripted.url, "PUSH_PLACE": str(tmp_path / "place")}
        words = [sys.executable, str(EXAMPLE)]
        # Nobody writes to its input, and nobody closes it.
        service = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
        assert service.stdin is not None and service.stderr is not None
        try:
            wait_for(lambda: service.poll() is not None, "the end of the service")
            assert b"Forbidden" in service.stderr.read() and service.returncode == 1
        finally:
            service.kill()
            service.wait()
            service.stdin.close()
            service.stderr.close()


def test_a_post_of_another_program_does_not_end_the_service(tmp_path: Path) -> None:
    with Server() as server, Tidewire(server.url) as client:
        client.follow("ann", "bob")
        for body in (None, ["a list"], {"title": 1}):
            client.publish("bob", body, wait="delivered")
        environment = {**os.environ, "TIDEWIRE_SERVER": server.url, "PUSH_PLACE": str(tmp_path / "place")}
        words = [sys.executable, str(EXAMPLE)]
        service = subprocess.run(words, input=b"\n", capture_output=True, env=environment, timeout=60)
        assert service.returncode == 0, service.stderr
        assert service.stdout.count(b"ann reads bob: (not a text)\n") == 3


@pytest.mark.skipif("TIDEWIRE_EXAMPLES" not in os.environ, reason="the examples of the repository are not named by TIDEWIRE_EXAMPLES")
def test_the_consumer_counts_each_post_once_though_it_and_the_server_are_killed(tmp_path: Path) -> None:
    said: list[str] = []
    with Server() as server, Tidewire(server.url) as client:

        def start() -> tuple[subprocess.Popen[str], threading.Thread]:
            environment = {**os.environ, "TIDEWIRE_SERVER": server.url, "TAGS": str(tmp_path / "tags.sqlite")}
            words = [sys.executable, "-W", "error", str(CONSUMER)]
            consumer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
            reading = threading.Thread(target=lambda: said.extend(consumer.stdout or []))
            reading.start()
            return consumer, reading

        def stop(consumer: subprocess.Popen[str], reading: threading.Thread) -> None:
            consumer.kill()
            consumer.wait()
            reading.join()
            assert consumer.stdout is not None
            consumer.stdout.close()

        def last(line: str) -> None:
            wait_for(lambda: said[-1:] == [f"{line}\n"], line)

        first = client.publish("bob", {"text": "one"}, tags=["tea", "rust"])
        running = start()
        try:
            last("rust 1, tea 1")
        finally:
            stop(*running)
        second = client.publish("bob", {"text": "two"}, tags=["tea"])
        running = start()
        try:
            last("tea 2, rust 1")
            server.kill()
            server.run()
            client.publish("cas", {"text": "three"}, tags=["tea"])
            last("tea 3, rust 1")
            client.delete_post(first.id)
            last("tea 2")
            client.erase_user("cas")
            last("tea 1")
        finally:
            stop(*running)
        # While it is away, a post is deleted, a user is erased, and the journal is cut.
        client.delete_post(second.id)
        client.publish("dan", {"text": "four"}, tags=["milk"])
        client.publish("eve", {"text": "five"}, tags=["tea"])
        wait_for(lambda: client.erase_user("eve"), "the end of the erasure")
        running = start()
        try:
            last("milk 1")
            client.publish("dan", {"text": "six"}, tags=["milk"])
            last("milk 2")
        finally:
            stop(*running)


@pytest.mark.skipif("TIDEWIRE_EXAMPLES" not in os.environ, reason="the examples of the repository are not named by TIDEWIRE_EXAMPLES")
@pytest.mark.parametrize("pages_before", [0, 1])
def test_the_consumer_keeps_what_it_has_if_the_server_does_not_list_all_posts(tmp_path: Path, pages_before: int) -> None:
    def page(number: int, is_complete: bool) -> Said:
        return Said(200, {"posts": [{**POST, "id": "9", "tags": ["milk"]}], "next": str(number), "sequence": 9, "complete": is_complete})

    table = sqlite3.connect(tmp_path / "tags.sqlite")
    with table:
        table.execute("CREATE TABLE posts (id TEXT, author TEXT, tag TEXT, PRIMARY KEY (id, tag))")
        table.execute("CREATE TABLE place (one INTEGER PRIMARY KEY CHECK (one = 1), sequence INTEGER NOT NULL)")
        table.execute("INSERT INTO posts VALUES ('1', 'bob', 'tea')")
        table.execute("INSERT INTO place VALUES (1, 3)")
    listing = [page(number, True) for number in range(pages_before)]
    with Scripted(problem(410, "gone", oldest=9), *listing, page(7, False)) as scripted:
        environment = {**os.environ, "TIDEWIRE_SERVER": scripted.url, "TAGS": str(tmp_path / "tags.sqlite")}
        ended = subprocess.run([sys.executable, str(CONSUMER)], capture_output=True, env=environment, timeout=60)
        assert ended.returncode == 1 and ended.stdout == b"", ended
        assert b"lists only some of its posts" in ended.stderr and b"Traceback" not in ended.stderr, ended
        # It does not read the rest of the pages.
        assert len(scripted.asked) == 2 + pages_before
    rows = table.execute("SELECT id, tag FROM posts").fetchall(), table.execute("SELECT sequence FROM place").fetchall()
    assert rows == ([("1", "tea")], [(3,)])
    table.close()


def test_the_programs_of_the_readme_run(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    text = EXAMPLE.parents[1].joinpath("README.md").read_text()
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    assert len(blocks) == 6
    for block in blocks[:2]:
        exec(compile(block.replace("http://127.0.0.1:8080", server.url), "README.md", "exec"), {})
    assert capsys.readouterr().out == "bob hello\n" * 2
    for block in blocks[2:]:
        compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
