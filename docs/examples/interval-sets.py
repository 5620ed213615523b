import numpy as np

method = METHOD
method.fit(X_train, y_train)

sets = method.predict_set(X_test)
pieces, truth = sets.intervals(), np.asarray(y_test)
for i in range(4):
    for low, high in pieces[i][:2]:  # one interval or more
        print(f"{low:,.1f} to {high:,.1f},", end=" ")
    print(f"{'... ' * (len(pieces[i]) > 2)}it was {truth[i]:,.1f}")
inside = sets.contains(truth)
print(f"{inside.mean():.1%} of {len(inside):,} new rows inside, 90 % asked for")
print(f"mean length {sets.volume().mean():,.2f}")
