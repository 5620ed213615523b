"""Rows from elsewhere beside a table: the same feature columns, other values."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from assay.core.errors import DataError
from assay.data.columns import fingerprint, kind_of, tidy
from assay.data.files import read_file
from assay.data.table import Table

#: fewer shifted rows than this say little
MIN_ROWS = 8


def with_shifted(table: Table, data: Any) -> Table:
    """The table with the features of the shifted rows, which count in its fingerprint.

    Parameters
    ----------
    data : path or pandas DataFrame
        Has all feature columns of the table, of the same kinds; other columns are left out.

    Raises
    ------
    DataError
        A feature is missing or of another kind, or there are fewer than 8 rows.
    """
    frame = data if isinstance(data, pd.DataFrame) else read_file(Path(data))[0]
    where = "the shifted rows" if isinstance(data, pd.DataFrame) else str(data)
    names = {str(name): name for name in frame.columns}
    missing = [name for name in table.features if name not in names]
    if missing:
        raise DataError(
            f"{where} lack {len(missing)} of {len(table.features)} feature columns: {', '.join(missing[:5])}"
            f"{', ...' if len(missing) > 5 else ''}"
        )
    if len(frame) < MIN_ROWS:
        raise DataError(f"{where} are {len(frame)} rows; at least {MIN_ROWS} are needed")
    columns = {}
    for name in table.features:
        column = tidy(frame[names[name]], name)[0].reset_index(drop=True)
        wanted, found = kind_of(table.frame[name]), kind_of(column)
        if found != wanted and not ({found, wanted} <= {"category", "text"} or column.isna().all()):
            raise DataError(f"the column {name!r} of {where} is {found}, in the table it is {wanted}")
        if found == "number" and np.isinf(column.to_numpy(dtype=np.float64)).any():
            raise DataError(f"the column {name!r} of {where} has infinite values; leave those rows out")
        columns[name] = column
    shifted = pd.DataFrame(columns)
    own = fingerprint(shifted, ("shifted rows",))
    both = hashlib.sha256(f"{table.fingerprint} {own}".encode()).hexdigest()
    note = f"{len(shifted):,} shifted rows, to tell from the test rows"
    return replace(table, shifted=shifted, fingerprint=both, notes=(*table.notes, note))
