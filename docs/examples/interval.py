import numpy as np

method = METHOD
method.fit(X_train, y_train)

lower, upper = method.predict_interval(X_test).T
for low, high, truth in zip(lower[:4], upper[:4], y_test[:4]):
    print(f"{low:8,.0f} to {high:8,.0f}, it was {truth:,.0f}")
inside = (lower <= y_test) & (y_test <= upper)
print(f"{inside.mean():.1%} of {len(inside):,} new rows inside, 90 % asked for")
print(f"mean width {np.mean(upper - lower):,.0f}")
