"""Samples per second and errors of estimators, one sample at a time from Python, on one core.

    python crates/hedgerow-py/benches/estimators.py [--samples 2000] [--trials 3]

Every estimator predicts each sample of the same stream and then learns it. They take turns of fifty
samples, so that other load on the machine affects all of them. Time is CPU time. The settings of
each (bandwidth, step) are the best of a grid on the first 500 samples. Vowpal Wabbit takes part if
it is installed: from Python like the others, with each sample as a prepared line of text, and with
a whole file of such lines, its fastest way. The stream is Twitter (77 numbers per sample), from the
folder that HEDGEROW_DATA_DIR names or ../shared/data beside the project; without it, the stream is
generated.
"""

from __future__ import annotations

import os

# Before any library starts threads.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import gzip
import itertools
import tempfile
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

try:
    import vowpalwabbit
except ImportError:
    vowpalwabbit = None

INPUTS = 77
FEATURES = 100
TURN = 50
TUNING = 500

# The same bandwidths in both notations.
GAMMAS = (0.005, 0.05, 0.5, 5.0)
VARIANCES = tuple(0.5 / gamma for gamma in GAMMAS)


class Sample(NamedTuple):
    """A sample in the format of each library."""

    named: dict[str, float]
    row: Any
    y: float
    label: Any
    # A line in Vowpal Wabbit's format.
    text: str


Step = Callable[[Sample], float]


def of_river(model: Any) -> Step:
    """Predicts, then learns. River's pipelines transform in both steps."""

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
        # Transforms once for both steps, which is faster than a pipeline.
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


def newton(seed: int, ridge: float) -> Step:
    return of_river(HedgerowRegressor(method="linear-newton", scaling="none", ridge=ridge, seed=seed))


def linear(seed: int, rate: float) -> Step:
    return of_river(
        HedgerowRegressor(
            method="linear", scaling="none", step_size=rate, step_schedule="constant", seed=seed
        )
    )


def growing_ridge(seed: int, budget: int) -> Step:
    return of_river(HedgerowRegressor(budget=budget, seed=seed))


def wabbit(seed: int, rate: float, *, options: str = "") -> Step:
    """Vowpal Wabbit's own steps. Learning a sample returns the prediction made before."""
    model = vowpalwabbit.Workspace(f"--quiet --random_seed {seed} --learning_rate {rate} {options}")

    def step(sample: Sample) -> float:
        example = model.parse(sample.text)
        model.learn(example)
        guess = example.get_simplelabel_prediction()
        model.finish_example(example)
        return float(guess)

    return step


def wabbit_quadratic(seed: int, rate: float) -> Step:
    return wabbit(seed, rate, options="--quadratic xx")


def wabbit_rbf(seed: int, gamma: float, rate: float) -> Step:
    features = RBFSampler(gamma=gamma, n_components=FEATURES, random_state=seed).fit(np.zeros((1, INPUTS)))
    model = vowpalwabbit.Workspace(f"--quiet --random_seed {seed} --learning_rate {rate}")

    def step(sample: Sample) -> float:
        z = features.transform(sample.row)[0]
        example = model.example({"f": list(enumerate(z.tolist()))})
        example.set_label_string(str(sample.y))
        model.learn(example)
        guess = example.get_simplelabel_prediction()
        model.finish_example(example)
        return float(guess)

    return step


class Contender(NamedTuple):
    """An entry of the comparison, and its grid of settings."""

    name: str
    new: Callable[..., Step]
    grid: tuple[tuple[float, ...], ...]


# A step of River's squared loss, and of ours, is twice as long as one of scikit-learn's.
CONTENDERS = [
    Contender("River RBFSampler \\| LinearRegression", river_rbf, (GAMMAS, (1e-5, 3e-5, 1e-4, 2e-4))),
    Contender("scikit-learn RBFSampler, SGDRegressor", sklearn_rbf, (GAMMAS, (0.1, 0.3, 0.5, 0.8))),
    # It has so many for each input, 7,700 in all; with one for each there are about as many as
    # others have.
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
    Contender("HedgerowRegressor(linear), of the inputs", linear, ((0.8, 3.2, 12.8, 51.2),)),
    Contender("HedgerowRegressor(linear-newton), of the inputs", newton, ((1e-2, 1e-4, 1e-6),)),
    Contender("HedgerowRegressor(gr), budget chosen", growing_ridge, ((24, 32, 48, 64, 80),)),
    Contender("HedgerowRegressor(gr), as it comes", growing_ridge, ((100,),)),
]
RATES = (0.1, 0.5, 2.0, 8.0, 32.0, 128.0)
if vowpalwabbit:
    CONTENDERS += [
        Contender("Vowpal Wabbit, linear", wabbit, (RATES,)),
        Contender("Vowpal Wabbit, all products of two inputs", wabbit_quadratic, (RATES,)),
        Contender("scikit-learn's RBFSampler, Vowpal Wabbit", wabbit_rbf, (GAMMAS, RATES)),
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
        Sample(sample, x[at : at + 1], float(y[at]), y[at : at + 1], line(sample, float(y[at])))
        for at, sample in enumerate(named)
    ]


def line(sample: dict[str, float], y: float) -> str:
    return f"{y!r} |x " + " ".join(f"{name}:{value!r}" for name, value in sample.items())


def error(step: Step, samples: list[Sample]) -> float:
    return float(np.mean([(step(sample) - sample.y) ** 2 for sample in samples]))


def chosen(contender: Contender, samples: list[Sample]) -> tuple[float, ...]:
    choices = list(itertools.product(*contender.grid))
    if len(choices) == 1:
        return choices[0]
    # Diverging settings are not chosen.
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
    # Seconds a sample: median of the turns of each trial.
    seconds = np.zeros_like(errors)
    for trial in range(arguments.trials):
        steps = [
            contender.new(trial + 1, *choice) for contender, choice in zip(CONTENDERS, settings, strict=True)
        ]
        turns: list[list[float]] = [[] for _ in CONTENDERS]
        for begin in range(0, len(samples), TURN):
            part = samples[begin : begin + TURN]
            for at, step in enumerate(steps):
                before = time.thread_time()
                guesses = [step(sample) for sample in part]
                turns[at].append((time.thread_time() - before) / len(part))
                errors[at, trial] += sum(
                    (guess - sample.y) ** 2 for guess, sample in zip(guesses, part, strict=True)
                )
        seconds[:, trial] = [np.median(each) for each in turns]
    errors /= len(samples)
    versions = f"River {river.__version__}, scikit-learn {sklearn.__version__}"
    versions += f", Vowpal Wabbit {vowpalwabbit.__version__}" if vowpalwabbit else ", no Vowpal Wabbit"
    print(
        f"{versions}; {name}, {len(samples)} samples of {INPUTS} numbers, {arguments.trials} trials,", end=" "
    )
    print("each with a draw of random features; ratios are median [least, most] over the trials.\n")
    print("| | settings | samples/s | times River | times scikit-learn | MSE, 1e-3 |")
    print("|---|---|--:|--:|--:|--:|")
    for contender, choice, each, error in zip(CONTENDERS, settings, seconds, errors, strict=True):
        picked = ", ".join(f"{value:g}" for value in choice)
        print(
            f"| {contender.name} | {picked} | {1 / np.median(each):,.0f} | {ratio(seconds[0] / each)} |",
            f"{ratio(seconds[1] / each)} | {1000 * error.mean():.2f} ± {1000 * error.std():.2f} |",
        )
    if vowpalwabbit:
        print(f"\n{from_a_file(samples, settings)}")


def ratio(values: Any) -> str:
    return f"{np.median(values):.1f} [{values.min():.1f}, {values.max():.1f}]"


def from_a_file(samples: list[Sample], settings: list[tuple[float, ...]]) -> str:
    """How fast Vowpal Wabbit goes through a file of its own format.

    The file has the stream ten times, so that starting doesn't count.
    """
    rates = {contender.new: choice[-1] for contender, choice in zip(CONTENDERS, settings, strict=True)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream.txt"
        path.write_text("".join(f"{sample.text}\n" for sample in samples) * 10)
        before = time.process_time()
        options = f"--quiet --learning_rate {rates[wabbit]} --data {path} --predictions {folder}/guesses.txt"
        model = vowpalwabbit.Workspace(options)
        model.run_parser()
        model.finish()
        seconds = time.process_time() - before
        guesses = np.loadtxt(f"{folder}/guesses.txt", max_rows=len(samples))
    mse = np.mean((guesses - [sample.y for sample in samples]) ** 2)
    rate = 10 * len(samples) / seconds
    return (
        f"Vowpal Wabbit, linear, from a file of its format: {rate:,.0f} samples/s, MSE {1000 * mse:.2f}e-3."
    )


if __name__ == "__main__":
    main()
