import numpy as np
from scipy.spatial.distance import cdist

method = METHOD
method.fit(X_train, y_train)

# move each row by 0.25 towards the nearest row of another digit
far = np.where(y_test[:, None] == y_train, np.inf, cdist(X_test, X_train))
step = X_train[far.argmin(axis=1)] - X_test
X_moved = X_test + 0.25 * step / np.linalg.norm(step, axis=1, keepdims=True)
for name, rows in (("where they are", X_test), ("moved by 0.25", X_moved)):
    sets = method.predict_set(rows)  # (rows, classes): is the label in the set?
    inside = sets[np.arange(len(y_test)), y_test]
    print(f"{name}: {inside.mean():.1%} of {len(inside)} inside,", end=" ")
    print(f"mean size {sets.sum(axis=1).mean():.2f}")

radii = np.arange(0, 0.55, 0.05)
size = method.certified_sets(X_test, radii).sum(axis=2).mean(axis=1)
for i in (0, 2, 5, 10):
    print(f"sets for moves of up to {radii[i]:.2f}: mean size {size[i]:.2f}")
