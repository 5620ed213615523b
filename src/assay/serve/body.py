"""The rows in the body of a request: strict JSON, as records or as columns, of bounded size."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from assay.core.errors import DataError

#: columns that a request may have beside those of the method; they are named in the answer and left out
MOST_OTHERS = 100


class TooLarge(DataError):
    """The request has more bytes or rows than the service takes."""


def read_rows(body: bytes, known: Sequence[str], most_rows: int) -> pd.DataFrame:
    """The rows of ``{"rows": [{column: value, ...}, ...]}`` or ``{"columns": {column: [value, ...]}}``.

    Parameters
    ----------
    body : bytes
        JSON in UTF-8; ``null`` is a missing value. There is no NaN and no Infinity in JSON.
    known : names
        Columns that are used; of others only the name is kept.
    most_rows : int

    Returns
    -------
    DataFrame
        Rows in order, with as many columns as the request names; what is in them, nobody has looked at.

    Raises
    ------
    TooLarge
        More rows than that.
    DataError
        It is no JSON, or of another form: what, and where.
    """
    content = _parsed(body)
    if not isinstance(content, dict) or len(content) != 1 or not {"rows", "columns"} & content.keys():
        raise DataError(
            'the body must be {"rows": [{column: value, ...}, ...]} or {"columns": {column: [value, ...]}}, '
            "with nothing beside"
        )
    if "rows" in content:
        return _of_records(content["rows"], known, most_rows)
    return _of_columns(content["columns"], known, most_rows)


def _of_records(rows: Any, known: Sequence[str], most_rows: int) -> pd.DataFrame:
    if not isinstance(rows, list):
        raise DataError('"rows" must be a list of objects, one a row')
    _check_number(len(rows), most_rows)
    bad = next((i for i, row in enumerate(rows) if not isinstance(row, dict)), None)
    if bad is not None:
        raise DataError(f"row {bad} is no object of columns and values")
    names = dict.fromkeys(name for row in rows for name in row)
    used = [name for name in known if name in names]
    for name in used:
        absent = [i for i, row in enumerate(rows) if name not in row]
        if absent:
            raise DataError(
                f"the column {name!r} is missing in {len(absent):,} of {len(rows):,} rows, first in row "
                f"{absent[0]}; write null where there is no value"
            )
    return _frame({name: [row[name] for row in rows] for name in used}, list(names), len(rows))


def _of_columns(columns: Any, known: Sequence[str], most_rows: int) -> pd.DataFrame:
    if not isinstance(columns, dict) or not all(isinstance(values, list) for values in columns.values()):
        raise DataError('"columns" must be an object of lists, one a column')
    lengths = {len(values): name for name, values in columns.items()}
    if len(lengths) > 1:
        said = ", ".join(f"{length:,} ({name!r})" for length, name in list(lengths.items())[:3])
        raise DataError(f"the columns have different numbers of values: {said}")
    n = next(iter(lengths), 0)
    _check_number(n, most_rows)
    return _frame({name: columns[name] for name in known if name in columns}, list(columns), n)


def _frame(used: dict[str, list[Any]], names: list[str], n: int) -> pd.DataFrame:
    others = [name for name in names if name not in used]
    if len(others) > MOST_OTHERS:
        raise DataError(
            f"{len(others):,} columns are none of the method's, such as {others[0]!r}; at most {MOST_OTHERS} "
            "may be sent beside them"
        )
    index = pd.RangeIndex(n)
    left_out = pd.DataFrame(np.zeros((n, len(others)), dtype=bool), index=index, columns=others)
    return pd.concat([pd.DataFrame(used, index=index), left_out], axis=1)


def _check_number(n: int, most_rows: int) -> None:
    if n == 0:
        raise DataError("there is no row in the request")
    if n > most_rows:
        raise TooLarge(f"{n:,} rows in one request; this service takes {most_rows:,}: send them in parts")


def _parsed(body: bytes) -> Any:
    try:
        content = json.loads(
            body.decode("utf-8"),
            parse_constant=_no_number,
            parse_float=_float,
            parse_int=_integer,
            object_pairs_hook=_object,
        )
        if b"\\ud" in body.lower():
            json.dumps(content, ensure_ascii=False).encode("utf-8")
    except DataError:
        raise
    except RecursionError:
        raise DataError("the body is nested too deeply") from None
    except UnicodeError as error:
        raise DataError(f"the body is not UTF-8: {error.reason}") from None  # type: ignore[attr-defined]
    except ValueError as error:
        raise DataError(f"the body is no JSON: {error}") from None
    return content


def _no_number(text: str) -> NoReturn:
    raise DataError(f"{text} is no JSON; write null where there is no value")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise DataError(f"the number {text[:20]}{'...' * (len(text) > 20)} is too large")
    return value


def _integer(text: str) -> int | float:
    """Whole numbers of 64 bits as they are, larger ones as the nearest float."""
    value = int(text) if len(text) < 21 else None
    return value if value is not None and -(2**63) <= value < 2**63 else _float(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"duplicated column name: {twice!r}; rename one of them")
    return made
