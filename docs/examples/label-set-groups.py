import numpy as np

method = METHOD
method.fit(X_train, y_train, groups=groups_train)

sets = method.predict_set(X_test, groups=groups_test)  # (rows, classes)
for members, truth in zip(sets[:4], y_test[:4]):
    print(f"{method.classes_[members]} years; it was {truth}")
inside = sets[np.arange(len(y_test)), np.searchsorted(method.classes_, y_test)]
print(f"{inside.mean():.1%} of {len(inside):,} new rows inside, 90 % asked for")
size = sets.sum(axis=1)
for group in np.unique(groups_test):
    rows = groups_test == group
    print(f"group {group}: {inside[rows].mean():.1%} inside,", end=" ")
    print(f"mean size {size[rows].mean():.2f}")
