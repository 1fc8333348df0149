"""MK-OFL's node step in plain numpy, as one would write it from the paper: features, prediction, learning, vote, upload.

Prints one JSON object per case: `draw`, `nodes` handled by one call, and nanoseconds per node step. P = 11, D = 49, d = 77.
"""

import json
import math
import time

import numpy as np

P, D, d, LAM, K = 11, 49, 77, 0.01, 20
SIGMA = np.sqrt(10.0 ** (np.arange(1, 12) - 6))


class Node:
    """One node, one sample at a time."""

    def __init__(self, draw, rng, dtype=np.float64):
        self.rng, self.sigma = rng, SIGMA.astype(dtype)
        self.shared = draw == "shared"
        rows = D if self.shared else P * D
        self.v = rng.standard_normal((rows, d))
        if not self.shared:
            self.v /= np.repeat(SIGMA, D)[:, None]
        self.v = self.v.astype(dtype)
        self.models = np.zeros((P, 2 * D), dtype)
        self.log = np.zeros(P)
        self.model, self.kernel, self.next_kernel = np.zeros(2 * D, dtype), 0, 0

    def features(self, x):
        angles = self.v @ x
        angles = angles / self.sigma[:, None] if self.shared else angles.reshape(P, D)
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=1) / math.sqrt(D)

    def step(self, x, y, t):
        z = self.features(x)
        prediction = self.model @ z[self.kernel]
        w = self.models
        w[self.kernel] = self.model
        error = np.sum(w * z, axis=1) - y
        loss = error**2 + LAM * np.sum(w**2, axis=1)
        rate = 1 / math.sqrt(t)
        self.models = w - rate * (2 * error[:, None] * z + 2 * LAM * w)
        self.log -= math.log(P) * rate * K * loss
        q = np.cumsum(np.exp(self.log - self.log.max()))
        vote = int((self.rng.random() * q[-1] > q).sum())
        return prediction, vote, self.models[self.next_kernel].copy()


class Nodes:
    """K nodes by one call per operation: what a simulation would do."""

    def __init__(self, draw, rng, dtype=np.float64):
        self.one = Node(draw, rng, dtype)
        self.v, self.sigma = self.one.v, self.one.sigma
        self.models = np.zeros((K, P, 2 * D), dtype)
        self.log = np.zeros((K, P))
        self.model, self.kernel, self.next_kernel = np.zeros(2 * D, dtype), 0, 0

    def step(self, x, y, t):
        angles = x @ self.v.T
        angles = angles[:, None, :] / self.sigma[:, None] if self.one.shared else angles.reshape(K, P, D)
        z = np.concatenate([np.sin(angles), np.cos(angles)], axis=2) / math.sqrt(D)
        prediction = z[:, self.kernel] @ self.model
        w = self.models
        w[:, self.kernel] = self.model
        error = np.einsum("kpf,kpf->kp", w, z) - y[:, None]
        loss = error**2 + LAM * np.einsum("kpf,kpf->kp", w, w)
        rate = 1 / math.sqrt(t)
        self.models = w - rate * (2 * error[:, :, None] * z + 2 * LAM * w)
        self.log -= math.log(P) * rate * K * loss
        q = np.cumsum(np.exp(self.log - self.log.max(axis=1, keepdims=True)), axis=1)
        vote = (self.one.rng.random((K, 1)) * q[:, -1:] > q).sum(axis=1)
        return prediction, vote, self.models[:, self.next_kernel].copy()


def best_of(runs, work):
    times = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - start)
    return min(times)


def main():
    rng = np.random.default_rng(1)
    x, y = rng.random((200, K, d)), rng.random((200, K))
    for draw in ("independent", "shared"):
        node = Node(draw, rng)
        ns = best_of(75, lambda: [node.step(x[t, 0], y[t, 0], t + 1) for t in range(200)]) / 200
        print(json.dumps({"draw": draw, "nodes": 1, "ns": ns}), flush=True)
        nodes = Nodes(draw, rng)
        ns = best_of(75, lambda: [nodes.step(x[t], y[t], t + 1) for t in range(200)]) / (200 * K)
        print(json.dumps({"draw": draw, "nodes": K, "ns": ns}), flush=True)


if __name__ == "__main__":
    main()
