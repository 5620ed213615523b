"""Results as a comparison would give them, computed from made-up methods on made-up data."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from assay.engine.plan import RunInfo, TrialResult


def info(methods, *, task="interval", seeds=(0, 1, 2, 3, 4), alpha="0.1", **changes):
    """A RunInfo; ``methods`` are names, or mappings with a name."""
    specs = []
    for item in methods:
        spec = {"name": item} if isinstance(item, str) else dict(item)
        specs.append({"card": None, "params": {}, "skip": None, "target": f"mine:{spec['name']}", **spec})
    values = {
        "id": "20260705-a1b2c3",
        "dataset": "housing",
        "source": "housing.csv",
        "fingerprint": "sha256:8f1c2d3e4a5b",
        "target": "price",
        "task": task,
        "why_task": "the target has 812 different numbers",
        "alpha": alpha,
        "n_rows": 2930,
        "n_features": 79,
        "notes": ("12 rows without a target were left out", "column id dropped: every value differs"),
        "methods": tuple(specs),
        "model": "sklearn.ensemble:RandomForestRegressor",
        "seeds": tuple(seeds),
        "limits": {"seconds": 120.0, "memory": 2 * 2**30},
        "command": "assay compare housing.csv --target price --seeds 5",
        "versions": {"assay": "0.1.0", "python": "3.11.7", "numpy": "2.4.0", "scikit-learn": "1.9.0"},
        "started": "2026-07-05T09:12:44+00:00",
        "seconds": 183.4,
    }
    return RunInfo(**{**values, **changes})


def result(method, seed, metrics=None, *, status="ok", error="", seconds=1.0, **detail):
    """A TrialResult; rows of the split default to 600, 200 and 200."""
    rows = {"n_train": 600, "n_calib": 200, "n_test": 200, "expected_coverage": [0.84, 0.95]}
    return TrialResult(
        identity=f"{method}-{seed}",
        method=method,
        seed=seed,
        status=status,
        metrics=metrics or {},
        seconds=seconds,
        error=error,
        detail={**rows, **detail} if status == "ok" else {},
    )


@dataclass
class Fake:
    """An interval method: noise scale it believes in, a factor on its width, its cost."""

    name: str
    adapts: float = 0.0
    factor: float = 1.0
    seconds: float = 0.5
    fails: tuple = ()
    infinite: bool = False
    spec: dict = field(default_factory=dict)


FAKES = (
    Fake("split", spec={"card": "split"}),
    Fake("normalised", 0.7, seconds=1.4),
    Fake("cqr", 0.9, 1.02, 2.6),
    Fake("cp2", 1.0, 0.985, 21.0),
    Fake("pcp", 0.85, 0.84, 18.0),
    Fake("jackknife+", 0.0, 1.01, 96.0),
    Fake("full-ridge", 0.0, 1.1, 4.0, fails=(1, 3)),
)


def interval_results(fakes=FAKES, seeds=range(5), scale=41000.0, n=400):
    """Trials of the fakes on a target whose noise grows with its size."""
    out = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        x = np.sort(rng.uniform(0.2, 2.2, n))
        centre = scale * (1.2 + x + 0.4 * np.sin(3 * x))
        spread = scale * (0.08 + 0.22 * x**1.5)
        y = centre + spread * rng.normal(size=n)
        for fake in fakes:
            if seed in fake.fails:
                error = "MethodError: the ridge system is singular at row 17; drop one of the equal columns"
                out.append(
                    result(fake.name, seed, status="timed out" if seed == 3 else "failed", error=error)
                )
                continue
            believed = spread**fake.adapts * np.mean(spread) ** (1 - fake.adapts)
            q = np.quantile(np.abs(y - centre) / believed, 0.9) * fake.factor * rng.normal(1, 0.015)
            lower, upper = centre - q * believed, centre + q * believed
            if fake.infinite:
                lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
            out.append(_interval_trial(fake, seed, y, centre, lower, upper, rng))
    return out


def _interval_trial(fake, seed, y, centre, lower, upper, rng):
    n = len(y)
    inside = (lower <= y) & (y <= upper)
    width = upper - lower
    order = np.argsort(width, kind="stable")
    groups = [
        {
            "label": label,
            "n": len(part),
            "coverage": float(inside[part].mean()),
            "mean_width": float(width[part].mean()),
        }
        for label, part in zip(
            ("narrowest", "narrow", "middle", "wide", "widest"), np.array_split(order, 5), strict=True
        )
    ]
    gap = float(np.mean([abs(g["coverage"] - 0.9) for g in groups])) if fake.adapts else float("nan")
    shown = np.linspace(0, n - 1, 150).astype(int)

    def column(values):
        return [float(v) if np.isfinite(v) else None for v in values[shown]]

    below, above = np.clip(lower - y, 0, None), np.clip(y - upper, 0, None)
    detail = {
        "examples": {
            "row": [int(i) for i in shown],
            "y": column(y),
            "prediction": column(centre),
            "lower": column(lower),
            "upper": column(upper),
        },
        "slab": {
            "coverage": float(inside[-60:].mean()),
            "n": 60,
            "mass": 0.15,
            "features": ["overall_qual", "gr_liv_area", "year_built"],
        },
    }
    if fake.adapts:
        detail["by_width"] = groups
    metrics = {
        "coverage": float(inside.mean()),
        "mean_width": float(width.mean()),
        "median_width": float(np.median(width)),
        "share_infinite": float(np.isinf(width).mean()),
        "share_empty": 0.0,
        "interval_score": float((width + 20 * (below + above)).mean()),
        "worst_slab_coverage": float(inside[-60:].mean()),
        "width_quintile_gap": gap,
        "fit_seconds": fake.seconds * float(rng.uniform(0.9, 1.2)),
        "predict_seconds": fake.seconds * 0.004 * float(rng.uniform(0.8, 1.3)),
        "peak_memory": 40 + 6 * fake.seconds,
    }
    return result(fake.name, seed, metrics, seconds=fake.seconds * 1.3, **detail)


def label_set_results(names=("lac", "aps", "raps", "class-conditional"), seeds=range(5), classes=10, n=500):
    """Trials of threshold methods on made-up probabilities."""
    labels = [f"digit {k}" for k in range(classes)]
    out = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        truth = rng.integers(classes, size=n)
        logits = rng.normal(size=(n, classes)) * (1 + truth[:, None] / classes)
        logits[np.arange(n), truth] += 3
        proba = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        for k, name in enumerate(names):
            score = -proba + 0.02 * k * rng.uniform(size=proba.shape)
            q = np.quantile(score[np.arange(n), truth], 0.9 - 0.03 * (name == "raps"))
            sets = score <= q
            out.append(_label_trial(name, seed, sets, truth, labels, 0.2 + k))
    return out


def _label_trial(name, seed, sets, truth, labels, seconds):
    n = len(truth)
    inside = sets[np.arange(n), truth]
    size = sets.sum(1)
    by_class = [
        {
            "label": label,
            "n": int((truth == k).sum()),
            "coverage": float(inside[truth == k].mean()),
            "mean_size": float(size[truth == k].mean()),
        }
        for k, label in enumerate(labels)
    ]
    by_size = [
        {"label": str(s), "n": int((size == s).sum()), "coverage": float(inside[size == s].mean())}
        for s in np.unique(size)
    ]
    examples = [
        {"row": int(i), "y": labels[truth[i]], "set": [labels[k] for k in np.flatnonzero(sets[i])]}
        for i in np.linspace(0, n - 1, 30).astype(int)
    ]
    metrics = {
        "coverage": float(inside.mean()),
        "mean_size": float(size.mean()),
        "share_empty": float((size == 0).mean()),
        "share_singleton": float((size == 1).mean()),
        "worst_class_coverage": min(g["coverage"] for g in by_class),
        "size_stratified_gap": float(np.mean([abs(g["coverage"] - 0.9) for g in by_size])),
        "class_coverage_gap": float(np.mean([abs(g["coverage"] - 0.9) for g in by_class])),
        "fit_seconds": seconds,
        "predict_seconds": 0.01 * seconds,
        "peak_memory": 12.0,
    }
    histogram = [[int(s), int((size == s).sum())] for s in np.unique(size)]
    return result(
        name, seed, metrics, examples=examples, by_class=by_class, by_size=by_size, size_histogram=histogram
    )
