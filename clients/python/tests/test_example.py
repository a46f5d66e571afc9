"""The example, as it is printed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
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


def test_the_programs_of_the_readme_run(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    text = EXAMPLE.parents[1].joinpath("README.md").read_text()
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    assert len(blocks) == 6
    for block in blocks[:2]:
        exec(compile(block.replace("http://127.0.0.1:8080", server.url), "README.md", "exec"), {})
    assert capsys.readouterr().out == "bob hello\n" * 2
    for block in blocks[2:]:
        compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
