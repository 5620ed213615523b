import numpy as np

X_calib, y_calib = X_train[750:], y_train[750:]
method = METHOD
method.fit(X_train[:750], y_train[:750], X_calib, y_calib)

sets = method.predict_set(X_test)  # (rows, classes): is the label in the set?
inside = sets[np.arange(len(y_test)), y_test]
print(f"{inside.mean():.1%} of {len(inside):,} new rows inside, 90 % asked for")
mean_size = sets.sum(axis=1).mean()
print(f"mean size {mean_size:.2f} of {len(method.classes_)} labels")

for r in (1, 4, 16, 64):  # so many calibration rows get a wrong label
    poisoned = np.r_[(y_calib[:r] + 5) % 10, y_calib[r:]]
    method.fit(X_train[:750], y_train[:750], X_calib, poisoned)
    same = (method.predict_set(X_test) == sets).all(axis=1)
    print(f"{r:2} poisoned: {same.mean():4.0%} of sets stay in this attack")
