"""Decision trees out of a file: refused where scikit-learn would walk out of them, or round in circles.

scikit-learn follows the numbers of children and features in a tree without looking whether they are there.
In a tree that was grown, children come after their parent; in any other, asking may crash or never end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def check_trees(made: Any) -> None:
    """Look through a model of scikit-learn for trees.

    Raises
    ------
    ValueError
        A tree's children or features are not there, or its rows of another width than the model's.
    """
    seen: set[int] = set()
    pending: list[tuple[Any, int | None]] = [(made, None)]
    while pending:
        item, width = pending.pop()
        if id(item) in seen or isinstance(item, (str, bytes, int, float, type(None), type)):
            continue
        seen.add(id(item))
        kind = (type(item).__module__, type(item).__name__)
        if kind == ("sklearn.tree._tree", "Tree"):
            is_leaf = item.children_left == -1
            _check(item.children_left, item.children_right, item.feature, is_leaf, width)
        elif kind[0].startswith("sklearn.ensemble._hist_gradient_boosting") and kind[1] == "TreePredictor":
            nodes = item.nodes
            _check(nodes["left"], nodes["right"], nodes["feature_idx"], nodes["is_leaf"] != 0, width)
            sets = nodes["bitset_idx"][(nodes["is_categorical"] != 0) & (nodes["is_leaf"] == 0)]
            if len(sets) and sets.max() >= min(
                len(item.raw_left_cat_bitsets), len(item.binned_left_cat_bitsets)
            ):
                raise ValueError("a tree has categories that are not there")
        elif isinstance(item, np.ndarray):
            if item.dtype == object:
                pending += [(inner, width) for inner in item.ravel().tolist()]
        elif isinstance(item, (list, tuple, set, frozenset)):
            pending += [(inner, width) for inner in item]
        elif isinstance(item, dict):
            pending += [(inner, width) for inner in item.values()]
        elif hasattr(item, "__dict__"):
            own = getattr(item, "n_features_in_", None)
            if own is not None and hasattr(item, "estimators_") and hasattr(item, "max_leaf_nodes"):
                # a forest hands its rows to its trees unchecked
                members = np.ravel(np.asarray(item.estimators_, dtype=object))
                if any(getattr(tree, "n_features_in_", own) != own for tree in members):
                    raise ValueError("the trees of a forest take rows of another width")
            pending += [(inner, width if own is None else int(own)) for inner in vars(item).values()]


def _check(
    left: NDArray[Any], right: NDArray[Any], feature: NDArray[Any], is_leaf: NDArray[Any], width: int | None
) -> None:
    inside = ~np.asarray(is_leaf, dtype=bool)
    n, places = len(left), np.flatnonzero(inside)
    for children in (left[inside].astype(np.int64), right[inside].astype(np.int64)):
        if n == 0 or (children <= places).any() or (children >= n).any():
            raise ValueError("a tree has children that are not there")
    columns = feature[inside].astype(np.int64)
    if len(columns) and (columns.min() < 0 or (width is not None and columns.max() >= width)):
        raise ValueError("a tree asks for features that are not there")
