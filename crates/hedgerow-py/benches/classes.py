"""Classes: `hedgerow simulate` beside linear and kernel classifiers of River and scikit-learn.

    python benches/classes.py path/to/hedgerow [--budget R] [DATA...]

Every sample is predicted before its class is learned, in the order of the data. Peers see all
samples in one place and one by one, with a running scaler. Hedgerow runs with 1 node, as they do,
and with 20 nodes that have a twentieth of the samples each. Rates are per second of CPU time; those
of Hedgerow include the whole program. With --budget only Hedgerow runs. Needs River and
scikit-learn.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from river import datasets, linear_model, multiclass, optim, preprocessing
from sklearn import datasets as bundled
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import PassiveAggressiveClassifier, SGDClassifier

Rows = tuple[np.ndarray, np.ndarray]


def of_river(stream: Any) -> Rows:
    samples = list(stream)
    names = sorted(samples[0][0])
    classes = sorted({y for _, y in samples})
    x = np.array([[row[name] for name in names] for row, _ in samples], dtype=float)
    return x, np.array([classes.index(y) for _, y in samples])


def of_words() -> Rows:
    """Which of the 200 most frequent words mails of SpamAssassin have. Needs spampy."""
    from scipy.io import loadmat

    package = find_spec("spampy")
    if package is None or package.origin is None:
        sys.exit("mail words: pip install --no-deps spampy scipy")
    table = loadmat(Path(package.origin).parent / "datasets/spamTrain.mat")
    x = table["X"].astype(float)
    return x[:, np.argsort(-x.sum(axis=0))[:200]], table["y"][:, 0].astype(int)


DATA: dict[str, Callable[[], Rows]] = {
    "Phishing": lambda: of_river(datasets.Phishing()),
    "Bananas": lambda: of_river(datasets.Bananas()),
    "ImageSegments": lambda: of_river(datasets.ImageSegments()),
    "breast cancer": lambda: bundled.load_breast_cancer(return_X_y=True),
    "digits": lambda: bundled.load_digits(return_X_y=True),
    "mail words": of_words,
}


def river_models(classes: int) -> Iterator[tuple[str, Any]]:
    if classes == 2:
        yield "River LogisticRegression", linear_model.LogisticRegression()
        yield "River LogisticRegression, Adam", linear_model.LogisticRegression(optim.Adam(0.01))
        yield "River ALMA", linear_model.ALMAClassifier()
        yield "River PA", linear_model.PAClassifier()
    yield "River SoftmaxRegression", linear_model.SoftmaxRegression()
    yield "River OneVsRest", multiclass.OneVsRestClassifier(linear_model.LogisticRegression())


def run_river(model: Any, x: np.ndarray, y: np.ndarray, classes: int) -> np.ndarray:
    model = preprocessing.StandardScaler() | model
    found = np.full((len(y), classes), 1.0 / classes)
    for at, (row, label) in enumerate(zip(x, y, strict=True)):
        sample = dict(enumerate(map(float, row)))
        probabilities = model.predict_proba_one(sample)
        if len(probabilities) == classes:
            for name, probability in probabilities.items():
                found[at, int(name)] = probability
        model.learn_one(sample, bool(label) if classes == 2 else int(label))
    return found


def sklearn_models(inputs: int) -> Iterator[tuple[str, Any, Any]]:
    def sgd(is_averaged: bool) -> SGDClassifier:
        return SGDClassifier(loss="log_loss", average=is_averaged, random_state=0)

    yield "scikit-learn SGD", sgd(False), None
    yield "scikit-learn SGD, averaged", sgd(True), None
    yield "scikit-learn PA", PassiveAggressiveClassifier(random_state=0), None
    for gamma in (1.0 / inputs, 0.1 / inputs):
        sampler = RBFSampler(gamma=gamma, n_components=300, random_state=0).fit(np.zeros((1, inputs)))
        yield f"RBFSampler {gamma:.2g}, SGD", sgd(False), sampler
        yield f"RBFSampler {gamma:.2g}, SGD averaged", sgd(True), sampler


def run_sklearn(model: Any, sampler: Any, x: np.ndarray, y: np.ndarray, classes: int) -> np.ndarray:
    found = np.full((len(y), classes), 1.0 / classes)
    mean, squares = np.zeros(x.shape[1]), np.zeros(x.shape[1])

    def features(row: np.ndarray, count: int) -> np.ndarray:
        spread = np.sqrt(squares / max(count, 1))
        scaled = ((row - mean) / np.where(spread < 1e-9, 1.0, spread))[None, :]
        return scaled if sampler is None else sampler.transform(scaled)

    for at, row in enumerate(x):
        if at > 0:
            z = features(row, at)
            if hasattr(model, "predict_proba"):
                found[at] = model.predict_proba(z)[0]
            else:
                scores = model.decision_function(z)[0]
                scores = np.array([-scores, scores]) if classes == 2 else scores
                powers = np.exp(scores - scores.max())
                found[at] = powers / powers.sum()
        before = row - mean
        mean += before / (at + 1)
        squares += before * (row - mean)
        model.partial_fit(features(row, at + 1), y[at : at + 1], classes=np.arange(classes))
    return found


def show(data: str, name: str, accuracy: float, log_loss: float, rate: float) -> None:
    print(f"| {data} | {name} | {100 * accuracy:.1f} | {log_loss:.3f} | {rate:,.0f} |", flush=True)


def scored(data: str, name: str, run: Callable[[], np.ndarray], y: np.ndarray) -> None:
    begin = time.process_time()
    found = run()
    rate = len(y) / (time.process_time() - begin)
    right = np.clip(found[np.arange(len(y)), y], 1e-6, 1.0)
    show(data, name, float((found.argmax(axis=1) == y).mean()), float(-np.log(right).mean()), rate)


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_hedgerow(program: str, budget: int, data: str, x: np.ndarray, y: np.ndarray) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "data.csv")
        with table.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*(f"x{at}" for at in range(x.shape[1])), "y"])
            writer.writerows([*row, f"c{label}"] for row, label in zip(x.tolist(), y, strict=True))
        runs = product((1, 20), ("squared", "logistic"), ("tr", "gr"))
        for nodes, loss, method in runs:
            command = [program, "simulate", "--json", "--data", str(table), "--trials", "1"]
            command += ["--scaling", "online", "--method", method, "--nodes", str(nodes)]
            command += ["--budget", str(budget)]
            command += ["--set", f"learning.loss={loss}", "--threads", "1", "--out", str(Path(folder, "out"))]
            begin = cpu_of_children()
            told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            rate = len(y) / (cpu_of_children() - begin)
            of = told["methods"][0]["classes"]
            name = f"**Hedgerow {method}**, {nodes} node{'s' if nodes > 1 else ''}, {loss} loss"
            show(data, name, of["accuracy"]["mean"], of["log_loss"]["mean"], rate)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("--budget", type=int)
    options.add_argument("data", nargs="*")
    given = options.parse_intermixed_args()
    print("| data | classifier | accuracy, % | log loss | samples/s |\n|---|---|---:|---:|---:|")
    for data in given.data or DATA:
        x, y = DATA[data]()
        classes = int(y.max()) + 1
        run_hedgerow(given.program, given.budget or 100, data, x, y)
        if given.budget:
            continue
        for name, model in river_models(classes):
            scored(data, name, lambda model=model: run_river(model, x, y, classes), y)
        for name, model, sampler in sklearn_models(x.shape[1]):
            run = lambda model=model, sampler=sampler: run_sklearn(model, sampler, x, y, classes)  # noqa: E731
            scored(data, name, run, y)


if __name__ == "__main__":
    main()
