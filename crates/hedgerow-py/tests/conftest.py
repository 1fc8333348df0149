"""Shared helpers and fixtures."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

# Without it scikit-learn skips one of its checks.
os.environ["SCIPY_ARRAY_API"] = "1"

Array = NDArray[np.float64]

METHODS = ["gr", "tr", "mk", "sk:6", "naive", "emk", "pof", "fedpoe", "linear", "linear-newton"]


@pytest.fixture
def samples() -> tuple[Array, Array]:
    """Unscaled samples of a nonlinear function."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(600, 3)) * [1.0, 30.0, 0.01] + [0.0, 500.0, 3.0]
    y = 100.0 + 10.0 * np.sin(2.0 * x[:, 0]) + 0.1 * (x[:, 1] - 500.0)
    return x, y


@pytest.fixture
def interrupt() -> Iterator[Callable[[float], None]]:
    """Raises Ctrl-C after some seconds, even if the shell of the tests ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def later(seconds: float) -> None:
        threading.Timer(seconds, signal.raise_signal, [signal.SIGINT]).start()

    yield later
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def program() -> Path:
    """The command line, built by ``cargo build``."""
    path = Path(os.environ.get("HEDGEROW", Path(__file__).parents[3] / "target/debug/hedgerow"))
    if not path.exists():
        pytest.fail(f"{path} is missing: `cargo build` makes it, or HEDGEROW says where it is")
    return path


Serve = Callable[..., tuple[subprocess.Popen[bytes], str]]


@pytest.fixture
def serve(program: Path, tmp_path: Path) -> Iterator[Serve]:
    """Starts a server with these settings. Returns its process and address."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*changes: str, port: int = 0) -> tuple[subprocess.Popen[bytes], str]:
        address = f"127.0.0.1:{port or free_port()}"
        settings = [f"listen.address={address}", "listen.dashboard=never", "store.path=run.db", *changes]
        if not any(change.startswith("listen.identity") for change in changes):
            settings.append("listen.tls=false")
        command = [str(program), "serve", *(part for change in settings for part in ("--set", change))]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
        running.append(process)
        wait_for(address)
        return process, address

    yield start
    for process in running:
        process.kill()
        process.wait()


def free_port() -> int:
    """A free port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for(address: str) -> None:
    """Waits until a process listens there."""
    host, port = address.split(":")
    for _ in range(6000):
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"nobody listens on {address}")


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits until a condition holds."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail(f"this never came to be: {what}")
