"""Nodes and servers whose messages Python transports."""

from __future__ import annotations

import contextlib
import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hedgerow import Broadcast, Engine, Federation, Plan, Server, Upload

from .conftest import METHODS, Array

NODES = 3


def tell(server: Server, node: Engine) -> None:
    if server.scale is not None:
        node.hear_scale(*server.scale)
    told = server.broadcast
    node.hear_broadcast(told.round, told.kernels, told.numbers, taken=server.taken(node.number))


def hear(server: Server, node: Engine) -> None:
    said = node.speak()
    if said.report is not None:
        server.accept_report(node.number, said.report)
    if said.upload is not None:
        server.accept_upload(node.number, said.upload)


@pytest.mark.parametrize("method", METHODS)
def test_carried_by_hand_and_pickled_on_the_way_it_is_the_federation(
    method: str, samples: tuple[Array, Array]
) -> None:
    x, y = samples
    plan = Plan(method=method, inputs=3, nodes=NODES)
    server, nodes = Server(plan), [Engine(plan, "run", number) for number in range(NODES)]
    for node in nodes:
        node.connected()
        tell(server, node)
    predictions = []
    for at in range(0, 300, NODES):
        for number in range(NODES):
            row = at + number
            predictions.append(nodes[number].learn_one(x[row], y[row]))
            # A node that is pickled in the middle of a round continues unchanged.
            nodes[number] = pickle.loads(pickle.dumps(nodes[number]))
            hear(server, nodes[number])
            nodes[number] = copy.deepcopy(nodes[number])
            assert nodes[number].speak().upload is None, "an upload is said once"
        if server.close_round():
            server = pickle.loads(pickle.dumps(server))
            for node in nodes:
                tell(server, node)
    federation = Federation(plan)
    result = federation.run(x[:300], y[:300])
    assert result.predictions is not None
    assert result.predictions.tolist() == predictions
    assert federation.rounds == server.round
    told = sum(node.tally["samples"] for node in nodes)
    assert told == 300
    assert server.mse == pytest.approx(result.mse[method], rel=1e-4)


def test_labels_that_come_later() -> None:
    node = Engine(Plan(inputs=1, scaling="none"))
    first = node.predict_later("a", [0.5])
    with pytest.raises(ValueError, match="already waits"):
        node.predict_later("a", [0.5])
    with pytest.raises(ValueError, match="256 bytes"):
        node.predict_later("a" * 300, [0.5])
    assert node.tally["waiting"] == 1
    assert node.learn_by_id("a", 1.0) == first
    with pytest.raises(KeyError, match="no prediction"):
        node.learn_by_id("a", 1.0)
    with pytest.raises(ValueError, match="NaN"):
        node.learn_by_id("a", float("nan"))
    assert (node.tally["samples"], node.tally["waiting"]) == (1, 0)


def test_without_a_connection_nothing_is_said() -> None:
    plan = Plan(inputs=1, scaling="none")
    server, node = Server(plan), Engine(plan)
    node.learn_one([0.1], 1.0)
    assert node.speak().upload is None
    node.connected()
    tell(server, node)
    assert node.speak().upload is not None
    assert node.awaits_broadcast
    node.disconnected()
    assert node.speak().upload is None


def test_a_restored_engine_has_no_connection_and_the_same_predictions(samples: tuple[Array, Array]) -> None:
    x, y = samples
    plan = Plan(inputs=3, scaling="none", personal=True)
    server, node = Server(plan), Engine(plan, "run", 5)
    node.connected()
    tell(server, node)
    node.learn(x[:50] / 1000, y[:50])
    other = Engine.restore(plan, node.save())
    assert (other.run, other.number, other.round) == ("run", 5, node.round)
    assert np.array_equal(other.predict(x / 1000), node.predict(x / 1000))
    assert (node.speak().upload is None, other.speak().upload is None) == (False, True)
    with pytest.raises(ValueError, match="saved"):
        Engine.restore(Plan(inputs=4), node.save())
    with pytest.raises(ValueError, match="saved"):
        Engine.restore(plan, b"")


def upload_of(plan: Plan) -> Upload:
    server, node = Server(plan), Engine(plan)
    node.connected()
    tell(server, node)
    node.learn_one(np.full(plan.inputs, 0.3), 1.0)
    upload = node.speak().upload
    assert upload is not None
    return upload


@pytest.mark.parametrize("method", METHODS)
def test_bad_uploads_are_refused_and_change_nothing(method: str) -> None:
    plan = Plan(method=method, inputs=2, scaling="none", nodes=2)
    server, good = Server(plan), upload_of(plan)
    before = server.save()
    numbers = good.numbers.copy()
    numbers[0] = np.nan
    bad: list[tuple[int, Any, Any, Any, Any]] = [
        (2, good.vote, good.numbers, 1, 0.0),
        (0, good.vote, good.numbers, 1, 0.0),
        (1, good.vote, numbers, 1, 0.0),
        (1, good.vote, good.numbers[:-1], 1, 0.0),
        (1, good.vote, [], 1, 0.0),
        (1, good.vote, np.append(good.numbers, np.float32(1.0)), 1, 0.0),
        (1, good.vote, good.numbers, 1, -1.0),
        (1, good.vote, good.numbers, 1, float("inf")),
    ]
    if good.vote is not None:
        bad += [(1, 10**6, good.numbers, 1, 0.0), (1, None, good.numbers, 1, 0.0)]
    for parts in bad:
        with pytest.raises(ValueError, match=r"expected|round|number|kernel|squared errors"):
            server.accept_upload(1, Upload(*parts))
        assert (server.uploads, server.save()) == (0, before)
    server.accept_upload(1, good)
    with pytest.raises(ValueError, match="already uploaded in round 1"):
        server.accept_upload(1, good)
    assert server.uploads == 1
    assert server.close_round()
    assert (server.round, server.taken(1), server.taken(0)) == (2, 1, 0)
    assert not server.close_round(), "nobody came"


def test_a_model_without_a_scale_is_refused() -> None:
    upload = upload_of(Plan(inputs=2, scaling="none"))
    server = Server(Plan(inputs=2))
    assert server.scale is None
    with pytest.raises(ValueError, match="no scale has been agreed on"):
        server.accept_upload(0, upload)
    with pytest.raises(ValueError, match="takes no uploads"):
        Server(Plan(inputs=2, scaling="none")).accept_report(0, np.zeros(15))
    for report in ([], np.full(15, np.nan), np.full(15, -1.0), np.zeros(14)):
        with pytest.raises(ValueError, match=r"numbers expected|can't be a summary|beyond the bound"):
            server.accept_report(0, report)


@pytest.mark.parametrize("node", [-1, 2**32, "a", 1.5, None])
def test_nodes_have_numbers(node: Any) -> None:
    server = Server(Plan(inputs=2, scaling="none"))
    with pytest.raises((ValueError, TypeError)):
        server.accept_upload(node, upload_of(Plan(inputs=2, scaling="none")))
    with pytest.raises((ValueError, TypeError)):
        server.taken(node)


def test_bad_messages_of_a_server() -> None:
    plan = Plan(method="mk", inputs=2, scaling="online")
    server, node = Server(plan), Engine(plan)
    told = server.broadcast
    for bad in (
        (told.round, told.kernels, told.numbers[:-1]),
        (told.round, (99, 99), told.numbers),
        (2**63, told.kernels, told.numbers),
        (told.round + 1, told.kernels, np.full_like(told.numbers, np.inf)),
        (told.round + 1, None, told.numbers),
        (told.round + 1, (-1, 0), told.numbers),
        (told.round + 1, (0, 2**32), told.numbers),
        (told.round, told.kernels, np.zeros(10**6)),
    ):
        with pytest.raises(ValueError, match=r"expected|round|number|kernel"):
            node.hear_broadcast(*bad)
    for version, scale in ((0, b""), (1, b""), (1, b"\xff" * 50), (-1, b"")):
        with pytest.raises(ValueError, match=r"scale|version"):
            node.hear_scale(version, scale)
    with pytest.raises(TypeError):
        node.hear_scale(1, "text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="length 2"):
        node.hear_broadcast(1, (1,), told.numbers)  # type: ignore[arg-type]
    tell(server, node)


def test_messages_survive_pickles() -> None:
    upload = upload_of(Plan(method="mk", inputs=2, scaling="none"))
    same = pickle.loads(pickle.dumps(upload))
    assert (same.round, same.vote, same.samples, same.squared_error) == (
        1,
        upload.vote,
        1,
        upload.squared_error,
    )
    assert np.array_equal(same.numbers, upload.numbers)
    told = Broadcast(3, (1, 2), [0.5])
    same_told = pickle.loads(pickle.dumps(told))
    assert (same_told.round, same_told.kernels, same_told.numbers.tolist()) == (3, (1, 2), [0.5])
    assert repr(told) == "Broadcast(round=3, kernels=(1, 2), 1 number)"


def test_compressed_messages_are_for_the_network() -> None:
    plan = Plan(inputs=2, compression="q8")
    with pytest.raises(ValueError, match="compression"):
        Server(plan)
    with pytest.raises(ValueError, match="compression"):
        Engine(plan).speak()


def test_spoilt_states_are_refused_or_work() -> None:
    plan = Plan(method="mk", inputs=2)
    engine, rng = Engine(plan), np.random.default_rng(0)
    for _ in range(20):
        engine.learn_one(rng.normal(size=2), 1.0)
    saved = engine.save()
    for _ in range(2000):
        spoilt = bytearray(saved)
        spoilt[rng.integers(len(saved))] = rng.choice([0, 127, 128, 255])
        with contextlib.suppress(ValueError):
            other = Engine.restore(plan, bytes(spoilt))
            other.learn_one([0.0, 1.0], 1.0)
            other.speak()
