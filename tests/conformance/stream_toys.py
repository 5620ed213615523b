"""A small honest stream, and copies of it that each break one law."""

import math

import numpy as np

from assay.core.errors import DataError
from assay.core.levels import parse_alpha


class Stream:
    """Adaptive conformal inference on a window of absolute errors."""

    window = 40

    def __init__(self, alpha=0.1, gamma=0.05):
        self.alpha = alpha
        self.gamma = gamma

    def _begin(self):
        if not hasattr(self, "level_"):
            self.level_, self.scores_, self.forecast_ = float(parse_alpha(self.alpha)), [], 0.0

    def predict_interval(self, forecast):
        self._begin()
        if np.isnan(forecast):
            raise DataError("the forecast is NaN")
        self.forecast_ = forecast
        q = self._threshold()
        return np.array([forecast - q, forecast + q])

    def _threshold(self):
        if self.level_ <= 0:
            return np.inf
        if self.level_ >= 1:
            return -np.inf
        rank = math.ceil((1 - self.level_) * (len(self.scores_) + 1))
        return np.inf if rank > len(self.scores_) else np.sort(self.scores_)[rank - 1]

    def update(self, y):
        self._begin()
        if np.isnan(y):
            return
        score = abs(y - self.forecast_)
        self.level_ += self.gamma * (float(parse_alpha(self.alpha)) - (score > self._threshold()))
        self.scores_ = self._keep(score)

    def _keep(self, score):
        return [*self.scores_, score][-self.window :]

    def run(self, y, forecasts):
        out = np.empty((len(y), 2))
        for t, outcome in enumerate(y):
            out[t] = self.predict_interval(forecasts[t])
            self.update(outcome)
        return out


class DyingStream(Stream):
    """Takes the level for a probability, and stops where it is none."""

    def _threshold(self):
        if self.level_ >= 1:
            raise ValueError("level outside [0, 1]")
        return super()._threshold()


class HoardingStream(Stream):
    def _keep(self, score):
        self.history_ = getattr(self, "history_", [])
        self.history_.append(score)
        return super()._keep(score)


class StreamLosesItsPlace(Stream):
    """A missing outcome counts as a miss."""

    def update(self, y):
        self._begin()
        if np.isnan(y):
            self.level_ -= self.gamma
            self.scores_ = self._keep(10.0)
        super().update(y)
