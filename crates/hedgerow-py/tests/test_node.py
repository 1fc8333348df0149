"""Nodes of a running server."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hedgerow import Learner, Node, Plan

from .conftest import Serve, free_port, until


def play(node: Node, samples: range) -> None:
    for t in samples:
        a, b = t % 7 / 7, t % 5 / 5
        node.learn_one({"a": a, "b": b}, a + b)
        time.sleep(0.002)


LEARNING = ('learning.columns=["a", "b"]', "learning.method=mk", "learning.nodes=2", "learning.scaling=none")


def test_two_nodes_learn_together_and_answer_while_the_server_is_away(serve: Serve, tmp_path: Path) -> None:
    server, address = serve(*LEARNING, "rounds.deadline=100ms")
    state = tmp_path / "a.state"
    with Node(address, name="a", state=state) as a, Node(address, name="b") as b:
        assert a.plan == Plan(method="mk", columns=["a", "b"], nodes=2, scaling="none")
        until(lambda: a.is_connected and b.is_connected, "both are connected")
        others = threading.Thread(target=play, args=(b, range(200)))
        others.start()
        play(a, range(200))
        others.join()
        until(lambda: a.round > 10 and a.status()["node"]["taken"] > 5, "rounds close and uploads are taken")
        assert abs(a.predict_one([0.5, 0.5]) - 1.0) < 0.3
        later = a.predict_later("q", (0.5, 0.5))
        assert a.learn_by_id("q", 1.0) == later
        with pytest.raises(KeyError, match="no prediction"):
            a.learn_by_id("q", 1.0)
        server.kill()
        server.wait()
        until(lambda: not a.is_connected, "the server is away")
        before = a.status()["node"]["samples"]
        play(a, range(20))
        assert a.status()["node"]["samples"] == before + 20
        known = a.predict_one([0.3, 0.3])
        # The server returns.
        serve(*LEARNING, port=int(address.split(":")[1]))
        until(lambda: a.is_connected, "the server is back")
    assert a.is_closed
    a.close()
    for call in (lambda: a.predict_one([0.0, 0.0]), a.status, lambda: a.round):
        with pytest.raises(ConnectionError, match="closed"):
            call()
    # A node with a state needs no server to answer.
    with Node(f"127.0.0.1:{free_port()}", name="a", state=state) as again:
        assert again.status()["node"]["samples"] == before + 20
        assert abs(again.predict_one([0.3, 0.3]) - known) < 0.5
        assert not again.is_connected


def test_bad_samples_are_refused_and_the_node_goes_on(serve: Serve) -> None:
    _, address = serve(*LEARNING)
    with Node(address, name="a") as node:
        for x, y, error in (
            ([0.0], 1.0, ValueError),
            ("text", 1.0, TypeError),
            ([0.0, "a"], 1.0, TypeError),
            (np.zeros((1, 2)), 1.0, ValueError),
            ([0.0, 0.0], np.inf, ValueError),
            ([0.0, 0.0], "a", TypeError),
        ):
            with pytest.raises(error):
                node.learn_one(x, y)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="256 bytes"):
            node.predict_later("x" * 300, [0.0, 0.0])
        # Without a label a sample is only predicted.
        for missing in (None, np.nan):
            assert np.isfinite(node.learn_one([0.0, 0.0], missing))
        node.learn_one([np.nan, None], 1.0)  # type: ignore[list-item]
        status = node.status()
        assert (status["node"]["samples"], status["node"]["imputed"]) == (1, 2)


SKY = ('learning.columns=["temperature", "sky"]', 'learning.categories.sky=["clear", "rain", "1"]')


def test_columns_of_text_come_by_name(serve: Serve) -> None:
    _, address = serve(*SKY, "learning.nodes=1", "learning.scaling=none")
    with Node(address, name="a") as node:
        assert node.plan.columns == ["temperature", "sky=clear", "sky=rain", "sky=1"]
        learner = Learner(node.plan)
        texts = {"sky": ["clear", "rain", "1"]}
        assert node.plan == Plan(columns=["temperature", "sky"], categories=texts, target="y", scaling="none")
        for t in range(40):
            sky, temperature = ["clear", "rain"][t % 2], t % 7 / 7
            node.learn_one({"temperature": temperature, "sky": sky}, temperature + t % 2)
            learner.learn_one({"temperature": temperature, "sky": sky}, temperature + t % 2)
        wet, dry = (node.predict_one({"temperature": 0.5, "sky": sky}) for sky in ("rain", "clear"))
        assert wet > dry
        for sample, numbers in (
            ({"temperature": 0.5, "sky": " rain "}, [0.5, 0.0, 1.0, 0.0]),
            ({"temperature": 0.5, "sky": 1}, [0.5, 0.0, 0.0, 1.0]),
            ({"temperature": 0.5, "sky=rain": 1.0, "sky=clear": 0.0, "sky=1": 0}, [0.5, 0.0, 1.0, 0.0]),
            ({"temperature": 0.5, "sky": None}, [0.5, 0.0, 0.0, 0.0]),
            ({"temperature": 0.5}, [0.5, 0.0, 0.0, 0.0]),
        ):
            assert learner.predict_one(sample) == learner.predict_one(numbers)
            # A round may close between two questions.
            assert node.predict_one(sample) == pytest.approx(node.predict_one(numbers), abs=0.02)
        assert node.status()["node"]["unseen_texts"] == 0
        fog = {"temperature": 0.5, "sky": "fog"}
        assert node.predict_one(fog) == pytest.approx(node.predict_one([0.5, 0.0, 0.0, 0.0]), abs=0.02)
        assert node.status()["node"]["unseen_texts"] == 1
        with pytest.raises(TypeError, match="sky"):
            node.predict_one({"temperature": 0.5, "sky": ["rain"]})


@pytest.mark.parametrize("setting", ["learning.lags=2", 'learning.calendar="hour"'])
def test_inputs_of_time_and_past_are_refused_with_what_to_do(serve: Serve, setting: str) -> None:
    _, address = serve('learning.columns=["a"]', 'learning.time="when"', setting)
    words = r"of the time or of earlier rows \(learning.calendar, learning.lags\): use `hedgerow join`"
    with pytest.raises(ValueError, match=words):
        Node(address, name="a")


def test_tls(serve: Serve, program: Path, tmp_path: Path) -> None:
    for command in (("init", "--name", "localhost"), ("issue", "a")):
        subprocess.run([program, "pki", *command], cwd=tmp_path, check=True, capture_output=True)
    _, address = serve(*LEARNING, f"listen.identity={tmp_path / 'pki'}")
    port = address.split(":")[1]
    identity = tmp_path / "pki/nodes/a.pem"
    with Node(f"localhost:{port}", identity) as node:
        assert node.status()["name"] == "a"
        until(lambda: node.is_connected, "it is connected")
    with Node(address, str(identity), server_name="localhost") as node:
        play(node, range(5))
    with pytest.raises(ConnectionError, match="certificate"):
        Node(address, identity, server_name="elsewhere.example", timeout=5.0)
    with pytest.raises(ConnectionError):
        Node(address, name="a", timeout=1.0)
    (tmp_path / "bad.pem").write_text("nothing")
    with pytest.raises(ValueError, match=r"bad\.pem"):
        Node(address, tmp_path / "bad.pem")


def test_nobody_there(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionError, match="never heard"):
        Node(address, name="a", timeout=0.3)
    with pytest.raises(FileNotFoundError, match=r"no\.pem"):
        Node(address, tmp_path / "no.pem")
    with pytest.raises(ValueError, match="HOST:PORT"):
        Node("nowhere", name="a")
    with pytest.raises(ValueError, match="identity or name"):
        Node(address)
    with pytest.raises(ValueError, match="identity or name"):
        Node(address, tmp_path / "no.pem", name="a")
    with pytest.raises(ValueError, match=r"samples\.source"):
        Node(address, name="a", settings={"samples.source": "stdin"})
    with pytest.raises(ValueError, match="timeout"):
        Node(address, name="a", timeout=-1.0)
    with pytest.raises(TypeError, match="adress"):
        Node(address, name="a", settings={"server.adress": "x"})
    with pytest.raises(OSError, match="state"):
        Node(address, name="a", state=tmp_path / "no/such/folder/a.state")
    state = tmp_path / "b.state"
    state.write_bytes(b"something else")
    with pytest.raises((ValueError, OSError), match=r"b\.state"):
        Node(address, name="a", state=state)
    with pytest.raises(ConnectionError, match="loopback"):
        Node("192.0.2.1:7443", name="a", timeout=5.0)


def test_a_fork_has_no_node(serve: Serve) -> None:
    _, address = serve("learning.inputs=1", "rounds.least=1")
    with Node(address, name="a") as node:
        child = os.fork()
        if child == 0:
            refused = ""
            try:
                node.predict_one([1.0])
            except ConnectionError as error:
                refused = str(error)
            is_closed = node.is_closed
            node.close()
            del node
            os._exit(0 if is_closed and "another process" in refused else 1)
        assert os.waitpid(child, 0)[1] == 0
        node.predict_one([1.0])
