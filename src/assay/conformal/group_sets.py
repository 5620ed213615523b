"""What methods that know the groups of rows share: how groups are given, and groups never seen before."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from assay.conformal.label_calibrators import Unseen
from assay.conformal.set_base import Codes, SetClassifier
from assay.core.errors import AssayWarning, DataError, MethodError
from assay.core.probabilities import encode_labels

_UNSEEN = ("all", "marginal", "refuse")


class GroupSetClassifier(SetClassifier):
    """Base of label-set methods that treat groups of rows by themselves.

    ``fit`` takes the groups of its rows, and so a comparison on a table with a group column hands them
    over. A subclass stores ``unseen`` in its constructor.
    """

    unseen: Any
    #: said after "no groups were given: "
    without_groups: ClassVar[str]

    def fit(
        self,
        X: Any,
        y: Any,
        X_calib: Any = None,
        y_calib: Any = None,
        groups: Any = None,
        groups_calib: Any = None,
    ) -> Self:
        """Train a clone of the classifier and calibrate it on rows it has not seen.

        Parameters
        ----------
        X : (n, d) table
        y : (n,) labels: numbers, strings or booleans
        X_calib, y_calib : table and labels, optional
            Calibration rows. Without them ``calibration_size`` of the given rows, drawn with
            ``random_state``, are set aside.
        groups : (n,) group of each row of X, optional
            Counts only where calibration rows are set aside from X: training looks at no groups.
        groups_calib : group of each row of X_calib, optional

        Raises
        ------
        DataError
            Missing or continuous labels or groups, lengths that differ, fewer than two rows or two
            classes.
        """
        return self._fit(X, y, X_calib, y_calib, groups, groups_calib)

    def _checked_unseen(self) -> Unseen:
        if self.unseen not in _UNSEEN:
            raise MethodError(f"unseen must be one of {', '.join(map(repr, _UNSEEN))}, got {self.unseen!r}")
        found: Unseen = self.unseen
        return found

    def _warn_without_groups(self) -> None:
        warnings.warn(f"no groups were given: {self.without_groups}", AssayWarning, stacklevel=6)

    def _group_codes(self, groups: NDArray[Any], names: NDArray[Any]) -> Codes:
        codes = encode_labels(groups, names)
        new = codes < 0
        if self.unseen == "refuse" and new.any():
            at = int(np.argmax(new))
            shown = ", ".join([*map(repr, names[:8].tolist()), *(["..."] if len(names) > 8 else [])])
            raise DataError(
                f"groups holds {groups[at : at + 1].tolist()[0]!r} at row {at}, a group without calibration "
                f"rows (there are: {shown}); {int(new.sum())} of {len(groups)} rows are of such a group. "
                "unseen='all' gives them all labels, unseen='marginal' the threshold of all groups together"
            )
        return codes
