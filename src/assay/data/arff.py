"""Reading Weka's ARFF: attributes with their types, then rows."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pandas as pd

from assay.core.errors import DataError

_BEGINNING = re.compile(rb"(\s*(%[^\n]*)?\n)*\s*@relation\b", re.IGNORECASE)


def is_arff(raw: bytes) -> bool:
    """Whether a file begins as ARFF does: comments, then ``@relation``."""
    return _BEGINNING.match(raw.removeprefix(b"\xef\xbb\xbf")) is not None


def read_arff(text: str, path: Path) -> pd.DataFrame:
    """Numbers, and text of nominal attributes; ``?`` is missing.

    Raises
    ------
    DataError
        Text or relational attributes, sparse rows, or a damaged file.
    """
    from scipy.io import arff

    if re.search(r"^@data\s*\n\s*\{", text, re.IGNORECASE | re.MULTILINE):
        raise DataError(f"{path}: ARFF with sparse rows is not read; save the table as CSV or Parquet")
    limit = csv.field_size_limit()
    try:
        rows, _ = arff.loadarff(io.StringIO(text))
    except NotImplementedError as error:
        raise DataError(
            f"{path}: ARFF with {error}; numbers, dates and nominal values are read. Save it as CSV"
        ) from error
    except (arff.ArffError, csv.Error, ValueError, IndexError, StopIteration) as error:
        raise DataError(f"{path}: the ARFF file cannot be read: {error}") from error
    finally:
        csv.field_size_limit(limit)  # SciPy lifts it for the whole process
    columns = {}
    for name in rows.dtype.names or ():
        values = rows[name]
        if values.dtype.kind == "S":
            decoded = np.char.decode(values, "utf-8").astype(object)
            decoded[decoded == "?"] = None
            columns[name.strip("'\"")] = pd.Series(decoded, dtype="str")
        else:
            columns[name.strip("'\"")] = pd.Series(values)
    if not columns or not len(rows):
        raise DataError(f"{path} has no rows after @data")
    return pd.DataFrame(columns)
