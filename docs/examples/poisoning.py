import numpy as np

method = METHOD
method.fit(X_train, y_train)

sets = method.predict_set(X_test)  # (rows, classes): is the label in the set?
inside = sets[np.arange(len(y_test)), y_test]
print(f"{inside.mean():.1%} of {len(inside):,} new rows inside, 90 % asked for")
mean_size = sets.sum(axis=1).mean()
print(f"mean size {mean_size:.2f} of {len(method.classes_)} labels")

proof = method.certify(X_test)
for r in (1, 2, 3, 4):
    print(f"{r} poisoned, sets that provably stay:", end=" ")
    print(f"{proof.reliable(r, 0).mean():4.0%} (training rows),", end=" ")
    print(f"{proof.reliable(0, r).mean():4.0%} (calibration rows)")
