"""What requests and answers look like, as JSON schemas made from the columns of a saved method."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from assay.data.build import LARGEST
from assay.data.schema import Column
from assay.engine.fitted import FittedMethod
from assay.serve.body import MOST_OTHERS

Json = dict[str, Any]

#: categories that a description names
_NAMED = 50
_WORDS = {
    "number": "a number",
    "bool": "true or false",
    "date": "a date (ISO 8601)",
    "category": "a category",
    "text": "text",
}
#: years 1900 to 2099; other dates may be read, but not all of them fit
_DATE = r"^(19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])(T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?Z?)?$"
#: what may stand for a number in an answer
NUMBER: Json = {"anyOf": [{"type": "number"}, {"type": "null"}, {"enum": ["inf", "-inf"]}]}
DETAIL: Json = {
    "type": "object",
    "required": ["detail"],
    "properties": {"detail": {"type": "string", "description": "What is wrong, where, and what would work."}},
}


def request_schema(fitted: FittedMethod, most_rows: int, *, outcomes: bool) -> Json:
    """Of the body of a request: rows of the method's columns, with their outcomes or without."""
    properties = {column.name: _value(column) for column in fitted.schema.columns}
    group, groups = fitted.about["group"], fitted.about["groups"]
    if groups:
        text = f"the group of the row: {_listed(groups)}"
        properties[group] = {"type": "string", "enum": list(groups), "description": text}
    if outcomes:
        properties |= {column.name: _value(column, outcome=True) for column in fitted.outcome_schema.columns}
    names = list(properties)
    row = {"type": "object", "required": names, "properties": properties, "additionalProperties": False}
    lists = {
        name: {"type": "array", "items": value, "minItems": 1, "maxItems": most_rows}
        for name, value in properties.items()
    }
    return {
        "description": "Rows in one of two forms. Columns are found by name, in any order; up to "
        f"{MOST_OTHERS} further columns are left out with a notice. Numbers may come as text.",
        "oneOf": [
            {
                "type": "object",
                "title": "Records",
                "required": ["rows"],
                "properties": {"rows": {"type": "array", "items": row, "minItems": 1, "maxItems": most_rows}},
                "additionalProperties": False,
            },
            {
                "type": "object",
                "title": "Columns",
                "description": "Lists of equal length, one a column.",
                "required": ["columns"],
                "properties": {
                    "columns": {
                        "type": "object",
                        "required": names,
                        "properties": lists,
                        "additionalProperties": False,
                    }
                },
                "additionalProperties": False,
            },
        ],
    }


def answers_schema(answers: pd.DataFrame) -> Json:
    """Of the body of an answer with such columns."""
    row = {
        "type": "object",
        "required": list(answers.columns),
        "properties": {name: _answer(answers[name].iloc[0]) for name in answers.columns},
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "required": ["answers", "notices"],
        "properties": {
            "answers": {"type": "array", "items": row, "description": "One a row, in the order of the rows."},
            "notices": NOTICES,
        },
    }


NOTICES: Json = {
    "type": "array",
    "items": {"type": "string"},
    "description": "What was strange in the rows: a column, a count and examples each.",
}

_COUNT: Json = {"type": "integer", "minimum": 0}
_SHARE: Json = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "null"}]}

COVERAGE: Json = {
    "type": "object",
    "required": ["promised", "level", "rows", "covered", "coverage", "p", "verdict", "evidence", "drifted"],
    "properties": {
        "promised": {"type": "number", "description": "1 - alpha"},
        "level": {"type": "number", "description": "Chance of a false finding of drift."},
        "calibration_rows": _COUNT,
        "rows": {**_COUNT, "description": "Rows with an outcome so far."},
        "covered": {**_COUNT, "description": "Those whose answer held the outcome."},
        "batches": {**_COUNT, "description": "Requests that brought them."},
        "coverage": _SHARE,
        "low": {**_SHARE, "description": "Exact 95 % interval of the coverage, from here"},
        "high": {**_SHARE, "description": "to here."},
        "p": {**_SHARE, "description": "Exact p-value of the promised coverage, for a single look."},
        "verdict": {"enum": ["as promised", "below", "above", None], "description": "By p at the level."},
        "evidence": {**NUMBER, "description": "Likelihood of the rows if coverage has drifted, by the rest."},
        "most_evidence": {**NUMBER, "description": "The largest so far."},
        "drifted": {
            "type": "boolean",
            "description": "Whether the evidence has ever reached 1 / level: valid however often one looks.",
        },
        "kept": {"enum": ["on disk", "in memory"], "description": "Whether the counts survive a restart."},
    },
}


def example(fitted: FittedMethod, *, outcomes: bool = False) -> Json:
    """One row such as the method may be asked about."""
    columns: Iterable[Column] = fitted.schema.columns
    if outcomes:
        columns = (*columns, *fitted.outcome_schema.columns)
    row = {column.name: _example(column) for column in columns}
    if fitted.about["groups"]:
        row[fitted.about["group"]] = fitted.about["groups"][0]
    return row


def _example(column: Column) -> Any:
    if column.kind == "number":
        if column.low is None or column.high is None or not math.isfinite(column.low + column.high):
            return None
        return float(f"{(column.low + column.high) / 2:.4g}")
    if column.kind == "bool":
        return True
    if column.kind == "date":
        return "2024-01-15T12:00:00"
    return column.values[0] if column.values else "some words"


def _value(column: Column, *, outcome: bool = False) -> Json:
    """Of a value of the column."""
    said = [_WORDS[column.kind]]
    if column.low is not None and column.high is not None and math.isfinite(column.low + column.high):
        said.append(f"{column.low:g} to {column.high:g} in training")
    if column.values is not None:
        said.append(f"in training: {_listed(column.values)}")
    if not outcome:
        said.append("null: some were missing" if column.missing else "never missing in training")
    kinds = {"number": "number", "bool": "boolean"}
    kind = kinds.get(column.kind, "string")
    # a column of true and false that never missed one has no place for a missing one
    made: Json = {"type": kind if outcome or column.kind == "bool" else [kind, "null"]}
    if column.kind == "date":
        made["pattern"] = _DATE
    if column.kind == "number":
        made |= {"minimum": -LARGEST, "maximum": LARGEST}  # beyond is taken for missing
    return {**made, "description": "; ".join(said)}


def _listed(values: Iterable[str]) -> str:
    found = list(values)
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def _answer(value: Any) -> Json:
    """Of the values of a column of answers, one of which is given."""
    if isinstance(value, (bool, np.bool_)):
        return {"type": "boolean"}
    if isinstance(value, (list, tuple)):
        return {"type": "array", "items": {"type": "string"} if all(map(_is_text, value)) else {}}
    return {"type": ["string", "null"]} if _is_text(value) else NUMBER


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
