"""Samples per second and errors of estimators, one sample at a time from Python, on one core.

    python crates/hedgerow-py/benches/estimators.py [--samples 2000] [--trials 3]

Everybody predicts each sample of the same stream and then learns it. They take turns, fifty samples
each, so that what else the machine does meets all of them; time is that of the processor. Each
one's own settings (bandwidth, step) are the best of a grid on the first 500 samples, theirs as well
as ours. The stream is Twitter (77 numbers a sample), from the folder that HEDGEROW_DATA_DIR names
or ../shared/data beside the project; without it, one that is made up.
"""

from __future__ import annotations

import os

# Before anybody starts threads.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import gzip
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import river
import sklearn
from hedgerow.river import FourierFeatures, HedgerowRegressor
from river import feature_extraction, linear_model, optim
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDRegressor

INPUTS = 77
FEATURES = 100
TURN = 50
TUNING = 500

# The same bandwidths, as they and as we name them.
GAMMAS = (0.005, 0.05, 0.5, 5.0)
VARIANCES = tuple(0.5 / gamma for gamma in GAMMAS)


class Sample(NamedTuple):
    """A sample as each of them likes it."""

    named: dict[str, float]
    row: Any
    y: float
    label: Any


Step = Callable[[Sample], float]


def of_river(model: Any) -> Step:
    """River's way: predict, then learn; a pipeline transforms in both."""

    def step(sample: Sample) -> float:
        guess = model.predict_one(sample.named)
        model.learn_one(sample.named, sample.y)
        return float(guess)

    return step


def river_rbf(seed: int, gamma: float, rate: float, components: int = FEATURES) -> Step:
    features = feature_extraction.RBFSampler(gamma=gamma, n_components=components, seed=seed)
    return of_river(features | linear_model.LinearRegression(optimizer=optim.SGD(rate), intercept_lr=rate))


def sklearn_rbf(seed: int, gamma: float, rate: float) -> Step:
    features = RBFSampler(gamma=gamma, n_components=FEATURES, random_state=seed).fit(np.zeros((1, INPUTS)))
    model = SGDRegressor(learning_rate="constant", eta0=rate, random_state=seed)
    model.partial_fit(features.transform(np.zeros((1, INPUTS))), [0.0])

    def step(sample: Sample) -> float:
        # Once for both, which is kinder than a pipeline would be.
        z = features.transform(sample.row)
        guess = model.predict(z)[0]
        model.partial_fit(z, sample.label)
        return float(guess)

    return step


def fourier(seed: int, variance: float) -> FourierFeatures:
    return FourierFeatures(kernels=(variance,), frequencies=FEATURES // 2, seed=seed)


def ours_and_river(seed: int, variance: float, rate: float) -> Step:
    linear = linear_model.LinearRegression(optimizer=optim.SGD(rate), intercept_lr=rate)
    return of_river(fourier(seed, variance) | linear)


def ours_and_ours(seed: int, variance: float, ridge: float) -> Step:
    linear = HedgerowRegressor(method="linear-newton", scaling="none", ridge=ridge, seed=seed)
    return of_river(fourier(seed, variance) | linear)


def one_step(seed: int, variance: float, rate: float) -> Step:
    return of_river(
        HedgerowRegressor(
            method="sk:1",
            kernels=(variance,),
            budget=FEATURES + 1,
            scaling="none",
            ridge=1e-6,
            step_size=rate,
            step_schedule="constant",
            seed=seed,
        )
    )


def growing_ridge(seed: int, budget: int) -> Step:
    return of_river(HedgerowRegressor(budget=budget, seed=seed))


class Contender(NamedTuple):
    """Who takes part, and the settings it may choose from."""

    name: str
    new: Callable[..., Step]
    grid: tuple[tuple[float, ...], ...]


# A step of River's squared loss, and of ours, is twice as long as one of scikit-learn's.
CONTENDERS = [
    Contender("River RBFSampler \\| LinearRegression", river_rbf, (GAMMAS, (1e-5, 3e-5, 1e-4, 2e-4))),
    Contender("scikit-learn RBFSampler, SGDRegressor", sklearn_rbf, (GAMMAS, (0.1, 0.3, 0.5, 0.8))),
    # It has so many for each input, 7,700 in all; with one for each there are about as many as others have.
    Contender(
        "River RBFSampler(n_components=1) \\| LinearRegression",
        river_rbf,
        (GAMMAS, (1e-3, 3e-3, 1e-2, 2e-2), (1,)),
    ),
    Contender(
        "FourierFeatures \\| River's LinearRegression",
        ours_and_river,
        (VARIANCES, (0.05, 0.15, 0.25, 0.4)),
    ),
    Contender(
        "FourierFeatures \\| HedgerowRegressor(linear-newton)",
        ours_and_ours,
        (VARIANCES, (1e-2, 1e-4, 1e-6)),
    ),
    Contender("HedgerowRegressor(sk:1), both in one", one_step, (VARIANCES, (0.05, 0.15, 0.25, 0.4))),
    Contender("HedgerowRegressor(gr), budget chosen", growing_ridge, ((24, 32, 48, 64, 80),)),
    Contender("HedgerowRegressor(gr), as it comes", growing_ridge, ((100,),)),
]


def stream(count: int) -> tuple[str, list[Sample]]:
    root = Path(__file__).resolve().parents[3]
    folder = Path(os.environ.get("HEDGEROW_DATA_DIR", root.parent / "shared/data"))
    path = folder / "authors_csv/TwitterData.csv.gz"
    if path.exists():
        with gzip.open(path, "rt") as lines:
            table = np.loadtxt(lines, delimiter=",", skiprows=1, max_rows=count)
        name, x, y = "Twitter", table[:, :-1], table[:, -1]
    else:
        rng = np.random.default_rng(0)
        x = rng.uniform(size=(count, INPUTS)) / np.sqrt(INPUTS)
        name, y = "made up", np.sin(4 * x[:, :5].sum(axis=1)) * 0.5 + 0.5
    assert x.shape[1] == INPUTS
    names = [f"x{at}" for at in range(INPUTS)]
    named = (dict(zip(names, row, strict=True)) for row in x.tolist())
    return name, [
        Sample(sample, x[at : at + 1], float(y[at]), y[at : at + 1]) for at, sample in enumerate(named)
    ]


def error(step: Step, samples: list[Sample]) -> float:
    return float(np.mean([(step(sample) - sample.y) ** 2 for sample in samples]))


def chosen(contender: Contender, samples: list[Sample]) -> tuple[float, ...]:
    choices = list(itertools.product(*contender.grid))
    if len(choices) == 1:
        return choices[0]
    # What diverges isn't chosen.
    with np.errstate(all="ignore"):
        return min(
            choices, key=lambda choice: np.nan_to_num(error(contender.new(1, *choice), samples), nan=np.inf)
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--trials", type=int, default=3)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    name, samples = stream(arguments.samples)
    settings = [chosen(contender, samples[:TUNING]) for contender in CONTENDERS]
    errors = np.zeros((len(CONTENDERS), arguments.trials))
    turns: list[list[float]] = [[] for _ in CONTENDERS]
    for trial in range(arguments.trials):
        steps = [
            contender.new(trial + 1, *choice) for contender, choice in zip(CONTENDERS, settings, strict=True)
        ]
        for begin in range(0, len(samples), TURN):
            part = samples[begin : begin + TURN]
            for at, step in enumerate(steps):
                before = time.thread_time()
                guesses = [step(sample) for sample in part]
                turns[at].append((time.thread_time() - before) / len(part))
                errors[at, trial] += sum(
                    (guess - sample.y) ** 2 for guess, sample in zip(guesses, part, strict=True)
                )
    errors /= len(samples)
    medians = np.array([np.median(each) for each in turns])
    print(
        f"River {river.__version__}, scikit-learn {sklearn.__version__}; {name}, {len(samples)} samples of",
        end=" ",
    )
    print(f"{INPUTS} numbers, {arguments.trials} draws of random features, median of {len(turns[0])} turns\n")
    print("| | settings | samples/s | times River | times scikit-learn | MSE, 1e-3 |")
    print("|---|---|--:|--:|--:|--:|")
    for contender, choice, median, each in zip(CONTENDERS, settings, medians, errors, strict=True):
        picked = ", ".join(f"{value:g}" for value in choice)
        print(
            f"| {contender.name} | {picked} | {1 / median:,.0f} | {medians[0] / median:.1f} |",
            f"{medians[1] / median:.1f} | {1000 * each.mean():.2f} ± {1000 * each.std():.2f} |",
        )


if __name__ == "__main__":
    main()
