"""The work that is put to assay and its peers: cases of the other benchmarks, with more contenders."""

from __future__ import annotations

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
    """A peer that may fail in any way: its error becomes the reason why there is no time."""

    def __init__(self, run: Callable[[Any], Any]) -> None:
        self.run = run

    def __call__(self, data: Any) -> Any:
        """Its answer."""
        try:
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
SETS = {
    "LAC": {"MAPIE": "compares within 1e-8"},
    "APS": {
        "puncc": "one label more in every set",
        "MAPIE": "calibrates the randomised score, then adds the crossing label",
    },
    "RAPS": {"puncc": "one label more in every set"},
    "randomised": {"TorchCP": "one uniform a label, ours one a row"},
}


def _label_sets() -> list[Case]:
    out = []
    for name in ("lac", "aps", "raps"):
        for case in label_sets.sets_cases(name, 10_000, 100, repeats=5):
            title = case.name.partition(",")[0]
            notes = SETS["randomised"] if "randomised" in title else SETS[title]
            out.append(replace(case, notes=notes))
    return out


def _small(name: str, contenders: dict[str, Callable[[Any], Any]]) -> Case:
    return Case(
        f"{name}, 10,000 x 10",
        partial(label_sets.inputs, 10_000, 10),
        contenders,
        3,
        label_sets.agree,
        tiny=partial(label_sets.inputs, 20, 10),
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
        _small("LAC", {"assay": partial(label_sets.assay_sets, name="lac"), "crepes": bare.crepes_sets}),
        _small(
            "class-conditional",
            {
                "assay": bare.by_class_assay,
                "crepes": bare.by_class_crepes,
                "TorchCP": bare.by_class_torchcp,
            },
        ),
        _small("Mondrian, five groups", {"assay": bare.by_group_assay, "crepes": bare.by_group_crepes}),
        *series.CASES,
        *networks.CASES,
    )
]
