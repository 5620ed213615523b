"""A task and methods that take no time, and methods that misbehave; importable in workers."""

import os
import random
import re
import signal
import time
import warnings

import numpy as np
import pandas as pd

from assay.data.table import Table
from assay.tasks.base import Metric, Outcome, Split, Task


def table(n=40, name="numbers"):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "y": rng.normal(size=n)})
    return Table(name=name, frame=frame, target="y", fingerprint=f"print of {n} rows", source="made up")


class TinyTask(Task):
    """Predict the target; the metric is the mean absolute error."""

    name = "tiny"
    reference = "mean"
    metrics = (Metric("error", "error", "target", "lower", "Mean absolute error."),)
    size_metric = coverage_metric = "error"

    def check(self, table, alpha):
        pass

    def split(self, table, seed):
        order = np.random.default_rng(seed).permutation(len(table))
        X, y = table.X.to_numpy()[order], table.y.to_numpy()[order]
        a, b = len(y) // 2, 3 * len(y) // 4
        names = tuple(table.X.columns)
        return Split(X[:a], y[:a], X[a:b], y[a:b], X[b:], y[b:], names, order[b:], seed)

    def default_model(self):
        from sklearn.linear_model import LinearRegression

        return LinearRegression()

    def accepts(self, method):
        return None if hasattr(method, "fit") else "it has no fit"

    def evaluate(self, method, split, alpha):
        method.fit(split.X_train, split.y_train)
        prediction = np.asarray(method.predict(split.X_test))
        if prediction.shape != split.y_test.shape:
            raise ValueError(f"prediction has shape {prediction.shape}, expected {split.y_test.shape}")
        error = np.abs(prediction - split.y_test).mean()
        extra = {"nan": float("nan"), "infinite": float("inf")} if getattr(method, "odd", False) else {}
        return Outcome({"error": error, **extra}, {"n_train": np.int64(len(split.y_train))})


TASK = f"{__name__}:TinyTask"


class Mean:
    def __init__(self, shift=0.0, random_state=None):
        self.shift = shift
        self.random_state = random_state

    def fit(self, X, y):
        self.mean_ = y.mean() + self.shift
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


class Least(Mean):
    """Solves a system large enough for threads to matter, with the given model besides."""

    def __init__(self, estimator=None, alpha=None, random_state=None):
        self.estimator = estimator
        self.alpha = alpha
        self.random_state = random_state

    def fit(self, X, y):
        self.model_ = self.estimator.fit(X, y)
        rng = np.random.default_rng(self.random_state)
        A = rng.normal(size=(400, 300))
        self.mean_ = float(np.linalg.lstsq(A, A @ rng.normal(size=300), rcond=None)[0].sum())
        self.mean_ += np.random.rand() + random.random()  # noqa: NPY002
        return self


class Writes(Mean):
    """Writes into the rows that it is given."""

    def fit(self, X, y):
        X[:] = 0.0
        y[:] = 1e6
        return super().fit(X, y)


class Odd(Mean):
    odd = True


class Warns(Mean):
    def fit(self, X, y):
        for _ in range(3):
            warnings.warn("mind the gap", UserWarning, stacklevel=1)
        return super().fit(X, y)


class Sleeps(Mean):
    def fit(self, X, y):
        time.sleep(1e6)


class Brief(Mean):
    """Takes a moment, so that something can happen meanwhile."""

    def fit(self, X, y):
        time.sleep(0.05)
        return super().fit(X, y)


class HoldsTheLock(Mean):
    """A C function that never returns and never lets another thread run."""

    def fit(self, X, y):
        re.match(r"(a+)+$", "a" * 60 + "b")


class AllocatesArrays(Mean):
    def fit(self, X, y):
        kept = []
        while True:
            kept.append(np.ones(1_000_000))


class AllocatesLists(Mean):
    def fit(self, X, y):
        kept = []
        while True:
            kept.append([0.5] * 1000)


class AllocatesTensors(Mean):
    def fit(self, X, y):
        import torch

        kept = []
        while True:
            kept.append(torch.ones(1_000_000))


class Exits(Mean):
    def __init__(self, status=1):
        self.status = status

    def fit(self, X, y):
        os._exit(self.status)


class ExitsPolitely(Mean):
    def fit(self, X, y):
        raise SystemExit(3)


class Interrupts(Mean):
    def fit(self, X, y):
        raise KeyboardInterrupt


class KillsItself(Mean):
    def __init__(self, number=int(signal.SIGKILL)):
        self.number = number

    def fit(self, X, y):
        print("last words", flush=True)
        os.kill(os.getpid(), self.number)
        time.sleep(10)


class SegmentationFault(Mean):
    def fit(self, X, y):
        import ctypes

        ctypes.string_at(0)


class Raises(Mean):
    def fit(self, X, y):
        raise ValueError("3 of 20 rows are odd")


class WrongShape(Mean):
    def predict(self, X):
        return np.zeros((len(X), 2))


class LeavesChild(Mean):
    """Starts a process of its own and sleeps."""

    def __init__(self, note=""):
        self.note = note

    def fit(self, X, y):
        import subprocess

        child = subprocess.Popen(["sleep", "1000"])
        with open(self.note, "w") as handle:
            handle.write(str(child.pid))
        time.sleep(1e6)
