"""The server: the official client, its own description, many clients at once, its page."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as xml
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from checks.row import ROOT, Context, Row, Skipped, at_least, at_most

from clover_edge import load
from clover_edge.corpus import task_rows

RECIPE = "int4"
CLIENTS, SECONDS = 50, 60
ASKS = 60  # requests whose answers are known
EXAMPLES = 60  # of each route's requests, valid and not
WARM_SHARE = 0.25  # of the time, until memory must be flat
GROWTH = 1.05  # resident memory at the end, of that when warm
RETRY = 0.2  # seconds; refused clients come again sooner than they are told, to press harder


def _needs(*packages: str) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise Skipped(f"needs extra test ({', '.join(missing)})")


def _tests(context: Context, label: str, files: tuple[str, ...], **environment: str) -> Row:
    """The tests of some files, in a process of their own."""
    report = context.scratch / "tests.xml"
    paths = [str(ROOT / "tests" / "server" / name) for name in files]
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *paths]
    run = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
    )
    suite = xml.parse(report).getroot().find("testsuite")
    assert suite is not None
    asked, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    if failed:
        print(run.stdout[-8000:], file=sys.stderr)
    if skipped:
        reasons = {element.attrib["message"] for element in suite.iter("skipped")}
        return Row(label, f"{asked - skipped} of {asked}", "all", None, "; ".join(reasons))
    good = asked > 0 and not failed and run.returncode == 0
    return Row(label, f"{asked - failed} of {asked}", "all", good, ", ".join(files))


def official_client(context: Context) -> Iterator[Row]:
    """Chat, stream, tools, usage, errors."""
    _needs("openai", "httpx", "fastapi", "uvicorn")
    files = ("test_openai_client.py", "test_refusals.py", "test_text.py", "test_queue.py")
    yield _tests(context, "server, official openai client: tests that pass", files)


def described_answers(context: Context) -> Iterator[Row]:
    """Requests made from the server's own OpenAPI description."""
    _needs("schemathesis", "fastapi", "uvicorn")
    examples = str(min(context.limit or EXAMPLES, EXAMPLES))
    label = "server against its own description: routes without fault"
    yield _tests(context, label, ("test_description.py",), CLOVER_TEST_EXAMPLES=examples)


def page_in_chromium(context: Context) -> Iterator[Row]:
    """The page chats, streams, shows denoising."""
    _needs("websocket", "fastapi", "uvicorn")
    yield _tests(context, "page in headless Chromium: tests that pass", ("test_page.py",))


class _Clients:
    """Clients that ask at once, each again and again, and compare what they are told."""

    def __init__(self, url: str, answers: dict[str, str], seconds: float) -> None:
        self._url = url
        self._answers = answers
        self._ends = time.monotonic() + seconds
        self._lock = threading.Lock()
        self.found: Counter[str] = Counter()

    def run(self) -> None:
        """All of them, until the time is over."""
        threads = [threading.Thread(target=self._client, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _client(self, number: int) -> None:
        import httpx

        rng = random.Random(number)
        with httpx.Client(base_url=self._url, timeout=300) as http:
            while time.monotonic() < self._ends:
                try:
                    kind = self._ask(http, rng)
                except Exception as error:
                    kind = f"{type(error).__name__}: {error}"
                with self._lock:
                    self.found[kind] += 1
                if kind == "refused":
                    time.sleep(RETRY)

    def _ask(self, http: Any, rng: random.Random) -> str:
        ask = rng.choice(list(self._answers))
        way = rng.choice(("whole", "stream", "left"))
        body = {"messages": [_user(ask)], "stream": way != "whole"}
        with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code in (429, 503) and "retry-after" in answer.headers:
                return "refused"
            if answer.status_code != 200:
                return f"status {answer.status_code}"
            if way == "left":
                next(answer.iter_lines())
                return "left"
            text = _streamed(answer) if way == "stream" else _whole(answer)
        return "answered" if text == self._answers[ask] else f"another answer to {ask!r}: {text!r}"


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _said(message: Mapping[str, Any]) -> str:
    """Text and calls of an answer, in one line."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    lines = [f"{call['name']} {json.loads(call['arguments'])}" for call in calls]
    return " | ".join([message["content"] or "", *lines])


def _whole(answer: Any) -> str:
    return _said(json.loads(answer.read())["choices"][0]["message"])


def _streamed(answer: Any) -> str:
    events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert events[-1] == "[DONE]"
    message: dict[str, Any] = {"content": "", "tool_calls": []}
    for event in events[:-1]:
        delta = json.loads(event)["choices"][0]["delta"]
        message["content"] += delta.get("content") or ""
        message["tool_calls"] += delta.get("tool_calls") or []
    return _said(message)


@contextmanager
def _served(path: Path, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The server as a process, and its address."""
    command = [sys.executable, "-m", "clover_edge.cli.main", "serve", str(path), "--port", "0"]
    with log.open("wb") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            while not (found := re.search(r"at (http://\S+)", log.read_text())):
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            yield process, found[1]
        finally:
            process.terminate()


def clients_at_once(context: Context) -> Iterator[Row]:
    """Fifty clients of one model for a minute; some read streams, some leave in the middle."""
    _needs("httpx", "fastapi", "uvicorn", "psutil")
    import psutil

    seconds = SECONDS if context.limit is None else min(SECONDS, context.limit)
    path, log = context.demo_model(RECIPE), context.scratch / "server.log"
    with load(path) as model:
        asks = [row["request"] for row in task_rows("combinations")[:ASKS]]
        answers = {ask: _said(model.chat([_user(ask)]).message()) for ask in asks}
    with _served(path, log) as (process, url):
        clients = _Clients(url, answers, seconds)
        pressing = threading.Thread(target=clients.run)
        pressing.start()
        memory, server = [], psutil.Process(process.pid)
        while pressing.is_alive():
            memory.append(server.memory_info().rss)
            pressing.join(0.5)
        alive = process.poll() is None
    found, label = clients.found, f"{CLIENTS} clients of one model, {seconds} s:"
    good = {name: found.pop(name, 0) for name in ("answered", "left", "refused")}
    said = ", ".join(f"{count} {name}" for name, count in good.items())
    yield at_most(f"{label} lost or mixed answers", found.total(), 0, "{:.0f}", "", said)
    for fault, count in found.most_common(5):
        print(f"{count} times {fault[:300]}", file=sys.stderr)
    yield at_least(f"{label} right answers", good["answered"], CLIENTS, "{:.0f}")
    clean = alive and process.returncode == 0 and "Traceback" not in log.read_text()
    yield Row(f"{label} crashes", "none" if clean else "some", "none", clean)
    warm = memory[int(len(memory) * WARM_SHARE) :]
    third = max(1, len(warm) // 3)
    growth = statistics.median(warm[-third:]) / statistics.median(warm[:third])
    note = f"{statistics.median(warm[-third:]) / 1e6:.0f} MB at the end"
    yield at_most(f"{label} growth of memory", growth, GROWTH, "{:.3f}", "x", note)


CHECKS = (official_client, described_answers, clients_at_once, page_in_chromium)
