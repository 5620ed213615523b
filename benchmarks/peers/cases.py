"""The work that is put to assay and its peers: cases of the other benchmarks, with more contenders."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import bare
import intervals
import label_sets
import networks
import series
from runner import Case, Unavailable

FIRST = "assay"


class Lenient:
    """A peer that may fail in any way: its error becomes the reason why there is no time.

    Some set the filters of warnings when they are imported; what they then warn of at each call would cost
    them time and hide the rest of the output.
    """

    def __init__(self, run: Callable[[Any], Any]) -> None:
        self.run = run

    def __call__(self, data: Any) -> Any:
        """Its answer."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self.run(data)
        except Unavailable:
            raise
        except Exception as error:  # it stands in the table
            raise Unavailable(f"fails: {type(error).__name__}: {error}") from error


def _lenient(case: Case) -> Case:
    contenders = {
        name: run if name.startswith(FIRST) else Lenient(run) for name, run in case.contenders.items()
    }
    return replace(case, contenders=contenders)


def _of(module: Any, start: str, repeats: int, notes: Mapping[str, str] | None = None, **more: Any) -> Case:
    """The case of a benchmark whose name starts so, with fewer repeats and further contenders."""
    case = next(case for case in module.CASES if case.name.startswith(start))
    contenders = {name: run for name, run in case.contenders.items() if run is not intervals.cqr_crepes}
    return replace(case, contenders=contenders | more, repeats=repeats, notes=notes or {})


SINGLE = "single precision in calibration"
TIES = "rounding in single precision"
SETS = {
    "LAC": {"TorchCP": TIES, "MAPIE": "compares within 1e-8"},
    "APS": {
        "TorchCP": TIES,
        "puncc": "one label more in every set",
        "MAPIE": "calibrates the randomised score, then adds the crossing label",
    },
    "RAPS": {"TorchCP": TIES, "puncc": "one label more in every set"},
    "randomised": {"TorchCP": "one uniform a label, ours one a row"},
}


def _label_sets() -> list[Case]:
    out = []
    for name in ("lac", "aps", "raps"):
        for case in label_sets.sets_cases(name, 50_000, 100, repeats=3):
            title = case.name.partition(",")[0]
            notes = SETS["randomised"] if "randomised" in title else SETS[title]
            out.append(replace(case, notes=notes))
    return out


def _ten(name: str, n: int, repeats: int = 3, notes: Any = None, **contenders: Callable[[Any], Any]) -> Case:
    return Case(
        f"{name}, {n:,} x 10",
        partial(label_sets.inputs, n, 10),
        contenders,
        repeats,
        label_sets.agree,
        tiny=partial(label_sets.inputs, 20, 10),
        notes=notes or {},
    )


CASES = [
    _lenient(case)
    for case in (
        _of(intervals, "split, 1,000,000", 5, {"TorchCP": SINGLE}, TorchCP=bare.split_torchcp),
        Case(
            "normalised, 1,000,000 + 1,000,000 rows",
            bare.normalised_inputs,
            {
                "assay": bare.normalised_assay,
                "crepes": bare.normalised_crepes,
                "MAPIE": bare.normalised_mapie,
                "puncc": bare.normalised_puncc,
                "TorchCP": bare.normalised_torchcp,
            },
            5,
            intervals.same_intervals,
            tiny=partial(bare.normalised_inputs, 100),
        ),
        _of(intervals, "CQR, 1,000,000", 5, {"TorchCP": SINGLE}, TorchCP=bare.cqr_torchcp),
        _of(intervals, "CV+, 4,000", 3, puncc=bare.cv_plus_puncc),
        _of(intervals, "jackknife+, 1,000", 3),
        *_label_sets(),
        _ten("LAC", 10_000, assay=partial(label_sets.assay_sets, name="lac"), crepes=bare.crepes_sets),
        _ten("class-conditional", 200_000, 7, assay=bare.by_class_assay, TorchCP=bare.by_class_torchcp),
        _ten(
            "class-conditional",
            10_000,
            notes={"crepes": "keeps a label whose p-value is exactly alpha"},
            assay=bare.by_class_assay,
            crepes=bare.by_class_crepes,
        ),
        _ten("Mondrian, five groups", 10_000, assay=bare.by_group_assay, crepes=bare.by_group_crepes),
        *series.CASES,
        *networks.CASES,
    )
]
