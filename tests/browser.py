"""Headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
START_SECONDS = 60.0
PATIENCE = 120.0  # seconds until something on a page must have happened, on a busy machine


def executable() -> str | None:
    """Chromium or Chrome: what CHROMIUM names, else on the path."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(address, suppress_origin=True, timeout=PATIENCE)
        self._ids = itertools.count(1)
        self.errors: list[str] = []  # exceptions and refusals that the console has seen
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command; RuntimeError where the browser refuses it."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, promises awaited."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"].get("description", script))
        return found["result"].get("value")

    def until(self, script: str) -> Any:
        """Waits until an expression is true."""
        ends = time.monotonic() + PATIENCE
        while not (value := self.run(script)):
            if time.monotonic() > ends:
                raise TimeoutError(f"never true: {script}; console: {self.errors}")
            time.sleep(0.02)
        return value

    def open(self, url: str) -> None:
        """Loads a page."""
        self.call("Page.navigate", url=url)
        self.until(f"location.href.startsWith({url!r}) && document.readyState === 'complete'")

    def look(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """The window's size and the reader's preference."""
        scale = 2 if phone else 1
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def type(self, text: str) -> None:
        """Text into what has the focus, as a keyboard would."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int) -> None:
        """One key."""
        fields = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **fields, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    def screenshot(self, path: Path) -> None:
        """A PNG of what is visible."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        entry = parameters.get("entry", {})
        if message.get("method") == "Log.entryAdded" and entry["level"] == "error":
            self.errors.append(entry["text"])


@contextmanager
def chromium(program: str) -> Iterator[Page]:
    """A browser with one empty tab and a profile of its own."""
    with tempfile.TemporaryDirectory(
        prefix="clover-edge-browser-", ignore_cleanup_errors=True
    ) as profile:
        flags = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
        flags += ["--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--mute-audio"]
        flags += ["--disable-background-networking", "--disable-component-update"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            flags.append("--no-sandbox")  # Chromium refuses to start as root with it
        process = subprocess.Popen(
            [program, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            with closing(Page(_address(Path(profile), process))) as page:
                yield page
        finally:
            process.terminate()
            process.wait()


def _address(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the first tab listens."""
    ends, file = time.monotonic() + START_SECONDS, profile / "DevToolsActivePort"
    while not file.is_file() or len(file.read_text().split()) < 2:
        if process.poll() is not None or time.monotonic() > ends:
            raise RuntimeError(f"the browser has not started (exit code {process.poll()})")
        time.sleep(0.05)
    port = file.read_text().split()[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
        tabs = json.load(answer)
    address: str = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
    return address
