"""A Flower fleet on loopback: a SuperLink, SuperNodes and ``flwr run`` as processes.

All processes end with the test.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

import hedgerow

from .conftest import free_port

EXAMPLE = Path(__file__).parents[3] / "examples/flower"

# A variable in the environment of every process of a fleet, to find processes that remain.
MARK = "HEDGEROW_TEST_FLEET"


class Fleet:
    """A SuperLink with SuperNodes, or one that simulates them."""

    def __init__(self, home: Path, nodes: int = 0, *, superlink: int = 0) -> None:
        self.home = home
        self.nodes = nodes
        self.port = free_port()
        # The address of the SuperLink for nodes. It may be a proxy.
        self.superlink = superlink or self.port
        self._mark = uuid.uuid4().hex
        self._processes: list[subprocess.Popen[bytes]] = []
        # Ray's sockets must have short names.
        self._ray = tempfile.TemporaryDirectory(prefix="ray-")

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        connection = (
            f'[superlink]\ndefault = "fleet"\n\n[superlink.fleet]\naddress = "127.0.0.1:{self.port}"\n'
        )
        (self.home / "config.toml").write_text(connection + "insecure = true\n")
        try:
            kind = [] if self.nodes else ["--simulation"]
            self._start("flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), *kind)
            self._until_it_listens()
            for number in range(self.nodes):
                address = f"127.0.0.1:{self.superlink}"
                config = f"partition-id={number} num-partitions={self.nodes}"
                own = ["--superlink", address, "--port", str(free_port()), "--node-config", config]
                self._start("flower-supernode", *own)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def run(self, *config: str, nodes: int = 0, seconds: float = 1800.0, app: Path = EXAMPLE) -> str:
        """Runs an app with these settings to its end. Returns its log."""
        command = [_program("flwr"), "run", str(app), "fleet", "--stream"]
        command += [part for setting in config for part in ("--run-config", setting)]
        if nodes:
            command += ["--federation-config", f"num-supernodes={nodes}"]
        output = self._flwr(command, seconds)
        # The stream ends with success even if the run fails.
        begun = re.search(r"started run (\d+)", output)
        if begun is None or f"{begun[1]} finished:completed" not in self._runs():
            raise RuntimeError(f"flwr run failed:\n{output}\n{self.logs()}")
        return output

    def _runs(self) -> list[str]:
        listed = self._flwr([_program("flwr"), "ls", "fleet", "--format", "json"], 600.0)
        runs = json.loads(listed[listed.index("{") :])["runs"]
        return [f"{run['run-id']} {run['status']}" for run in runs]

    def _flwr(self, command: list[str], seconds: float) -> str:
        ran = subprocess.run(
            command,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
        output = ran.stdout.decode(errors="replace")
        if ran.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{output}\n{self.logs()}")
        return output

    def logs(self) -> str:
        """The logs of the SuperLink and the SuperNodes."""
        return "\n".join(f"{path.name}:\n{path.read_text()}" for path in sorted(self.home.glob("*.log")))

    def left_over(self) -> list[int]:
        """Processes of this fleet that still run."""
        mark = f"{MARK}={self._mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                # A zombie has no environment.
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def _environment(self) -> dict[str, str]:
        package = str(Path(hedgerow.__file__).parents[1])
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        return {
            **os.environ,
            MARK: self._mark,
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "RAY_TMPDIR": self._ray.name,
            "RAY_USAGE_STATS_ENABLED": "0",
            "PATH": path,
            "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")])),
        }

    def _start(self, program: str, *options: str) -> None:
        log = self.home / f"{len(self._processes)}-{program}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [_program(program), "--insecure", *options],
                env=self._environment(),
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)

    def _until_it_listens(self) -> None:
        for _ in range(3000):
            if self._processes[0].poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise RuntimeError(f"the SuperLink did not start:\n{self.logs()}")

    def _end(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        # Children that still run.
        deadline = time.monotonic() + 10
        while (left := self.left_over()) and time.monotonic() < deadline:
            for number in left:
                try:
                    os.kill(number, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.1)
        self._ray.cleanup()


def _program(name: str) -> str:
    return str(Path(sys.executable).parent / name)
