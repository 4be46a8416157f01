"""Runs the application: in the foreground until a signal, or in a thread beside other work."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn

from ..errors import ArgumentError
from ..model import Model
from .app import create_app
from .service import Service
from .settings import Settings

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GRACE = 2.0  # seconds that answers may take to be sent once the worker has ended


class _Server(uvicorn.Server):
    """uvicorn's server, with the worker's end in its shutdown."""

    def __init__(self, service: Service) -> None:
        settings = service.settings
        super().__init__(
            uvicorn.Config(
                create_app(service),
                log_config=None,
                access_log=False,  # the gate logs
                server_header=False,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=round(settings.shutdown_limit + _GRACE),
            )
        )
        self._service = service
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # The worker ends in a thread of its own, while answers are sent.
        limit = self._service.settings.shutdown_limit
        self._service.worker.stop()
        ending = threading.Thread(target=self._service.worker.join, args=(limit,))
        ending.start()
        await super().shutdown(sockets)
        if self.force_exit:
            self._service.worker.cancel()
        ending.join()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal ends the server and not the process, whose exit code is then 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal ends the server, a second one does not wait for anything."""
        self.force_exit = self.should_exit
        self.should_exit = True


def serve(model: Model, settings: Settings, announce: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM; `announce` is told the address once requests are taken.

    Then new requests are refused, and what is running may take `settings.shutdown_limit` to end.
    Raises ArgumentError when host and port cannot be had.
    """
    with _bound(settings) as listener:
        server = _Server(Service(model, settings))
        announce(_url(listener))
        server.run(sockets=[listener])


@contextmanager
def running(model: Model, **settings: Any) -> Iterator[str]:
    """A server in a thread of this process, on a free port unless one is named; gives its URL.

    Keyword arguments are Settings' fields.
    """
    chosen = Settings(**{"port": 0, **settings})
    with _bound(chosen) as listener:
        server = _Server(Service(model, chosen))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.ready.wait(0.1) and thread.is_alive():
            pass
        try:
            yield _url(listener)
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def _bound(settings: Settings) -> Iterator[socket.socket]:
    """A socket that listens where the settings say."""
    host, port = settings.host.strip("[]"), settings.port
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=256)
    except (OSError, UnicodeError) as error:
        raise ArgumentError(f"host: {settings.host!r}, port {port}: {error}") from error
    with listener:
        yield listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
