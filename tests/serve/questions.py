"""Fitted methods of several tasks on small made-up homes, and rows that they have not seen."""

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import assay


def homes(seed=0, n=400):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "area": rng.uniform(20, 200, n),
            "rooms": rng.integers(1, 7, n),
            "town": rng.choice(["Ulm", "Bonn", "Kiel"], n),
            "new": rng.random(n) < 0.3,
            "sold": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
        }
    )
    frame.loc[::9, "area"] = np.nan
    frame["price"] = 3 * frame["area"].fillna(100) + 40 * (frame["town"] == "Bonn") + rng.normal(0, 20, n)
    frame["tax"] = 0.1 * frame["price"] + rng.normal(0, 3, n)
    frame["kind"] = np.where(frame["area"].fillna(100) + rng.normal(0, 20, n) > 90, "house", "flat")
    return frame


QUESTIONS = {
    "interval": {"target": "price", "method": "split", "drop": ["tax", "kind"]},
    "region": {"target": ["price", "tax"], "method": "max-score-box", "drop": ["kind"]},
    "label-set": {"target": "kind", "method": "lac", "drop": ["price", "tax"]},
    "predictive": {
        "target": "kind",
        "task": "predictive",
        "method": "sklearn-model",
        "model": LogisticRegression(),
        "drop": ["price", "tax"],
    },
    "groups": {"target": "kind", "method": "mondrian", "drop": ["price", "tax"], "group": "town"},
}


def fitted(question):
    return assay.fit(homes(), **QUESTIONS[question])


def records(frame):
    """Rows as a client would send them."""
    sent = frame.copy()
    for name in sent.columns:
        if sent[name].dtype.kind == "M":
            sent[name] = sent[name].dt.strftime("%Y-%m-%dT%H:%M:%S")
    return sent.astype(object).where(sent.notna(), None).to_dict("records")
