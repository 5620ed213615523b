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
    return Table(name=name, frame=frame, targets=("y",), fingerprint=f"print of {n} rows", source="made up")


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


class Notes(Mean):
    """Takes a while, and writes into a file when it begins: its seed and its process."""

    def __init__(self, note="", seconds=0.4, random_state=None):
        self.note = note
        self.seconds = seconds
        self.random_state = random_state

    def fit(self, X, y):
        with open(self.note, "a") as handle:
            handle.write(f"{self.random_state} {os.getpid()}\n")
        time.sleep(self.seconds)
        self.mean_ = y.mean()
        return self


class KillsItsHost(Mean):
    """Ends the process that started its own."""

    def fit(self, X, y):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(10)


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


class ChangesItsProcess(Mean):
    """Leaves every kind of trace that the next method in the same process would meet."""

    def fit(self, X, y):
        import resource
        import subprocess
        import threading

        import sklearn

        os.environ["MINE"] = "1"
        os.chdir("/")
        os.umask(0o777)
        np.seterr(all="ignore")
        np.median = np.mean
        sklearn.set_config(assume_finite=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        subprocess.Popen(["sleep", "1000"])
        resource.setrlimit(resource.RLIMIT_DATA, (2**34, 2**34))
        os.close(1)
        return super().fit(X, y)


class SaysWhatItMeets(Mean):
    """Its metric is the same only in a process that nobody has changed; its notice names the process."""

    def fit(self, X, y):
        super().fit(X, y)
        assert "MINE" not in os.environ
        assert np.median([1.0, 2.0, 6.0]) == 2.0
        warnings.warn(f"process {os.getpid()}", UserWarning, stacklevel=1)
        return self


class Forks(Mean):
    """A copy of the worker comes back from fit as well, later."""

    def fit(self, X, y):
        if os.fork() == 0:
            time.sleep(0.2)
        return super().fit(X, y)


class CannotBeSaid(Mean):
    """Its error is one that cannot be printed."""

    def fit(self, X, y):
        raise Unspeakable


class Unspeakable(Exception):
    def __str__(self):
        raise SystemExit(5)


class HalfACharacter(Mean):
    """Its error and its warning hold a lone surrogate, as file names do that are not UTF-8."""

    def fit(self, X, y):
        warnings.warn("cannot read \udcff.csv", stacklevel=1)
        raise ValueError("no file \udcff.csv")
