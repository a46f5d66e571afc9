"""The example, as it is printed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from scripted import Said, Scripted, problem
from server import Server, wait_for

from tidewire import Tidewire

EXAMPLE = Path(__file__).resolve().parents[1] / "examples/push_service.py"


def test_the_service_publishes_reads_and_pushes_what_is_missed_once_it_is_killed_too(tmp_path: Path) -> None:
    said: list[str] = []
    threads: dict[int, threading.Thread] = {}
    with Server("--active-window", "1s") as server, Tidewire(server.url) as client:

        def start() -> subprocess.Popen[str]:
            environment = {**os.environ, "TIDEWIRE_URL": server.url, "PUSH_PLACE": str(tmp_path / "place")}
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
        environment = {**os.environ, "TIDEWIRE_URL": scripted.url, "PUSH_PLACE": str(tmp_path / "place")}
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
        environment = {**os.environ, "TIDEWIRE_URL": server.url, "PUSH_PLACE": str(tmp_path / "place")}
        words = [sys.executable, str(EXAMPLE)]
        service = subprocess.run(words, input=b"\n", capture_output=True, env=environment, timeout=60)
        assert service.returncode == 0, service.stderr
        assert service.stdout.count(b"ann reads bob: (not a text)\n") == 3


def test_the_programs_of_the_readme_run(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    text = EXAMPLE.parents[1].joinpath("README.md").read_text()
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    assert len(blocks) == 6
    for block in blocks[:2]:
        exec(compile(block.replace("http://127.0.0.1:8080", server.url), "README.md", "exec"), {})
    assert capsys.readouterr().out == "bob hello\n" * 2
    for block in blocks[2:]:
        compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
