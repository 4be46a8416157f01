"""`clover-edge chat`, in a pipe and on a pseudo-terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import clover_edge
from clover_edge import ChatDoneEvent, ChatResult, TextEvent, ToolCall, ToolCallEvent
from clover_edge.cli.chat import Chat
from clover_edge.cli.conversation import Conversation
from clover_edge.cli.lines import Lines

COMMAND = [sys.executable, "-m", "clover_edge.cli.main", "chat"]
TOOLS = [{"name": "add", "description": "adds", "parameters": {"type": "object"}}]


def chat(packed: Path, lines: str | bytes, *flags: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, str(packed), *map(str, flags)],
        input=lines.encode() if isinstance(lines, str) else lines,
        capture_output=True,
        env={**os.environ, "PYTHONUTF8": "1"},
        timeout=120,
    )


def test_in_a_pipe(model: clover_edge.Model, packed: Path) -> None:
    """stdout holds the answers, which are those of Model.chat to the whole conversation."""
    done = chat(packed, "Hello\n\nwhy \\\nnot?\n", "--system", "Be brief.", "--max-new-tokens", 9)
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    want = ""
    for text in ("Hello", "why \nnot?"):
        messages.append({"role": "user", "content": text})
        answer = model.chat(messages, max_new_tokens=9)
        messages.append(answer.message())
        want += answer.text + ("" if answer.text.endswith("\n") else "\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == want
    assert done.stderr.count(b"tokens per forward") == 2
    assert b"\x1b" not in done.stdout + done.stderr and b"> " not in done.stderr


def test_a_chat_without_a_model_is_with_the_bundled_one() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "CLOVER_MODEL"}
    done = subprocess.run(
        COMMAND, input=b"call Maya\n", capture_output=True, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert b"call_contact" in done.stdout
    assert b"Maya" in done.stdout
    assert b"bundled demo model" in done.stderr


def test_commands(packed: Path, tmp_path: Path) -> None:
    saved, tools = tmp_path / "saved.json", tmp_path / "tools.json"
    state = tmp_path / "saved.json.session"
    tools.write_text(json.dumps(TOOLS))
    lines = f"Hello\n/save {saved}\n/stats\n/reset\n/stats\n/load {saved}\n/tools\n/tools {tools}\n"
    done = chat(packed, lines + "/help\n/quit\nnever read\n", "--max-new-tokens", 9, "-q")
    said = done.stderr.decode()
    assert done.returncode == 0, said
    messages = json.loads(saved.read_text())["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert state.is_file()
    assert done.stdout.decode().rstrip("\n") == messages[1]["content"].rstrip("\n")
    for words in ("wrote 2 messages", "of 512 tokens of context", "nothing has been answered yet"):
        assert words in said
    for words in ("read 2 messages", "there are no tools", "add: adds", "/help   this list"):
        assert words in said


def test_turns_compute_what_is_new(packed: Path, tmp_path: Path) -> None:
    """Also behind a /load; a saved state of another model costs a second reading, no more."""
    flags = ("--max-new-tokens", 9, "--system", "word " * 40)
    first = chat(packed, f"Hello\nagain\n/save {tmp_path}/it\nmore\n", *flags)
    kept = [int(n) for n in re.findall(rb"\((\d+) of them kept\)", first.stderr)]
    assert len(kept) == 2 and 40 < kept[0] < kept[1]
    loaded = chat(packed, f"/load {tmp_path}/it\nmore\n", *flags)
    assert [int(n) for n in re.findall(rb"\((\d+) of them kept\)", loaded.stderr)] == kept[1:]
    assert first.stdout.endswith(loaded.stdout) and loaded.stdout
    (tmp_path / "it.session").write_bytes(b"something else")
    anew = chat(packed, f"/load {tmp_path}/it\nmore\n", *flags)
    assert b"(the messages are read anew: " in anew.stderr and b"of them kept" not in anew.stderr
    assert anew.stdout == loaded.stdout


def test_what_goes_wrong_ends_nothing(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("{")
    (tmp_path / "none").write_text('{"messages": [{"role": 1}]}')
    lines = f"/save\n/load {tmp_path}/bad\n/load {tmp_path}/none\n/load {tmp_path}/missing\n/x\n"
    done = chat(
        packed, f"{lines}{'word ' * 600}\n".encode() + b"\xff\n//x\n", "--max-new-tokens", 3
    )
    said = done.stderr.decode()
    assert done.returncode == 0, said
    for words in ("a file's name is missing", "bad: is no JSON", r"none: messages[0].role: 1"):
        assert words in said
    for words in ("No such file", "/x: is no command", "the model has 512", "not valid Unicode"):
        assert words in said
    assert said.count("error: ") == 7 and done.stdout.count(b"\n") >= 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--tools", "missing.json"], "tools: missing.json: No such file"),
        (["--tools", os.devnull], "is no JSON"),
        (["--threshold", "2"], "threshold: 2.0"),
    ],
)
def test_bad_arguments(packed: Path, flags: list[str], words: str) -> None:
    done = chat(packed, "Hello\n", *flags)
    assert words in done.stderr.decode()


class Scripted(Conversation):
    """A conversation whose answers are given; None stands for Ctrl-C."""

    def __init__(self, model: clover_edge.Model, *answers: Any) -> None:
        super().__init__(model, None, [], None, {})
        self._answers = list(answers)

    def ask(self, asked: list[dict[str, Any]]) -> Generator[Any, None, None]:
        answer = self._answers.pop(0)
        if answer is None:
            yield TextEvent("half")
            raise KeyboardInterrupt
        counters = self._model.generate("x", max_new_tokens=1).counters
        calls = tuple(ToolCall(f"c{i}", "add", '{"a": 1}') for i in range(answer[1]))
        yield TextEvent(answer[0])
        for index, call in enumerate(calls):
            yield ToolCallEvent(index, call)
        yield ChatDoneEvent(ChatResult(answer[0], "", calls, (), "stop", (), counters))


def test_calls_and_their_results(
    model: clover_edge.Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user is asked for what the tools say; an interrupted answer is kept as far as it went."""
    conversation = Scripted(model, ("one", 2), ("two", 0), None)
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi\n5\n6\nmore\n"))
    Chat(conversation, drafts=False, counters=False).run()
    assert capsys.readouterr().out == 'one\nadd({"a": 1})\nadd({"a": 1})\ntwo\nhalf\n'
    contents = [(message["role"], message["content"]) for message in conversation.messages]
    assert contents == [
        *(("user", "hi"), ("assistant", "one"), ("tool", "5"), ("tool", "6")),
        *(("assistant", "two"), ("user", "more"), ("assistant", "half")),
    ]
    assert [message.get("tool_call_id") for message in conversation.messages[2:4]] == ["c0", "c1"]


@pytest.mark.parametrize(
    ("typed", "texts"),
    [
        ("a\nb", ["a", "b"]),
        ("a\\\nb\\\nc\n", ["a\nb\nc"]),
        ('"""a\n"b"\\\n"""\nc', ['a\n"b"\\', "c"]),
        ('"""\n  a\n\nb\n"""', ["  a\n\nb"]),
        ('"""a"""\n', ["a"]),
        ("\r\n", [""]),
    ],
)
def test_several_lines(typed: str, texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    lines = Lines()
    assert [lines.text("> ") for _ in texts] == texts
    with pytest.raises(EOFError):
        lines.text("> ")


class Screen:
    """A process on a pseudo-terminal."""

    def __init__(self, *arguments: Any, state: Path) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "PYTHONUTF8": "1", "XDG_STATE_HOME": str(state)},
            start_new_session=True,
        )
        os.close(slave)
        self.text = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, pattern: str) -> str:
        """What is shown up to a pattern, which is then done with."""
        end = time.monotonic() + 60
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < end, self.text
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self._master, 1 << 16).decode(errors="replace")
                except OSError:  # the other side is closed
                    assert re.search(pattern, self.text), self.text
        before, self.text = self.text[: found.end()], self.text[found.end() :]
        return before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def screen(tiny: Callable[..., Any], pack: Callable[..., Path], tmp_path: Path) -> Iterator[Screen]:
    packed = pack(tiny(seed=21, overrides={"max_position_embeddings": 1 << 20}), "int4")
    flags = ("--max-new-tokens", 500_000, "--threads", 1)
    screen = Screen(packed, *flags, state=tmp_path / "state")
    yield screen
    screen.close()


def test_on_a_terminal(screen: Screen, tmp_path: Path) -> None:
    """Ctrl-C cancels an answer, then a line; Ctrl-D leaves; what was typed is remembered."""
    screen.until("> ")
    screen.type("hello\r")
    screen.until("░")  # it denoises
    os.kill(screen.process.pid, signal.SIGINT)
    screen.until(r"\(cancelled\)\r\n> ")
    screen.type("/sta")
    screen.until("/sta")
    os.kill(screen.process.pid, signal.SIGINT)
    screen.until("\r\n> ")
    screen.type("/stats\r")
    screen.until("nothing has been answered yet\r\n> ")
    screen.type("\x04")
    assert screen.process.wait(60) == 0
    history = tmp_path / "state" / "clover-edge" / "chat_history"
    assert history.read_text().split("\n") == ["hello", "/stats", ""]
    assert history.stat().st_mode & 0o777 == 0o600
