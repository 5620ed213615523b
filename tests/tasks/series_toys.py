"""Small series, and online methods that are no card's."""

import numpy as np
import pandas as pd


def hourly(n=600, seed=0, start="2024-01-01"):
    """One series with a season of a day and noise that doubles half way."""
    rng = np.random.default_rng(seed)
    t = np.arange(n)
    noise = rng.normal(size=n) * np.where(t < n // 2, 1.0, 2.0)
    return pd.DataFrame(
        {
            "when": pd.date_range(start, periods=n, freq="h"),
            "load": 50 + 10 * np.sin(2 * np.pi * t / 24) + noise,
            "wind": rng.normal(size=n),
        }
    )


def many(lengths=(300, 300, 240), seed=0):
    """Several series on common whole-numbered steps, at very different scales."""
    rng = np.random.default_rng(seed)
    parts = [
        pd.DataFrame(
            {
                "step": np.arange(1, n + 1),
                "name": f"s{i}",
                "value": 10.0**i * (5 + np.cumsum(rng.normal(size=n))),
            }
        )
        for i, n in enumerate(lengths)
    ]
    return pd.concat(parts, ignore_index=True)


class Gradient:
    """Online gradient descent on the absolute error, many series at once, feedback ``horizon`` steps late."""

    def __init__(self, alpha=0.1, lr=0.3, horizon=1):
        self.alpha, self.lr, self.horizon = alpha, lr, horizon
        self.half = None
        self.waiting = []

    def run(self, y, forecasts):
        y, f = np.atleast_2d(y), np.atleast_2d(forecasts)
        assert np.isfinite(f).all()
        if self.half is None:
            self.half = np.zeros(len(y))
        out = np.empty((*y.shape, 2))
        for t in range(y.shape[1]):
            out[:, t] = np.stack([f[:, t] - self.half, f[:, t] + self.half], axis=-1)
            self.waiting.append((np.abs(y[:, t] - f[:, t]), self.half))
            if len(self.waiting) >= self.horizon:
                score, half = self.waiting.pop(0)
                step = self.lr * ((score > half) - self.alpha)
                self.half = np.where(np.isfinite(score), self.half + step, self.half)
        return out[0] if np.ndim(forecasts) == 1 else out


class Constant:
    """Intervals of a fixed half width, one step at a time; without ``run`` and without ``horizon``."""

    def __init__(self, half=2.0):
        self.half = half
        self.seen = 0

    def predict_interval(self, forecast):
        return forecast - self.half, forecast + self.half

    def update(self, y):
        self.seen += 1
