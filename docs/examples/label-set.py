import numpy as np

method = METHOD
method.fit(X_train, y_train)

sets = method.predict_set(X_test)  # (rows, classes): is the label in the set?
for members, truth in zip(sets[:4], y_test[:4]):
    print(f"{', '.join(method.classes_[members]) or 'none'}; it was {truth}")
inside = sets[np.arange(len(y_test)), np.searchsorted(method.classes_, y_test)]
print(f"{inside.mean():.1%} of {len(inside):,} new rows inside, 90 % asked for")
mean_size = sets.sum(axis=1).mean()
print(f"mean size {mean_size:.2f} of {len(method.classes_)} labels")
