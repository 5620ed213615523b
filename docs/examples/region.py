import numpy as np

method = METHOD
method.fit(X_train, Y_train)

region = method.predict_region(X_test)
area, inside = region.volume(), region.contains(Y_test)
around = region.take(np.arange(3)).bounding_box()  # of the first three regions
for i, ((left, right), (low, high)) in enumerate(around):
    print(f"{left:.2f} to {right:.2f}, {low:,.0f} to {high:,.0f};", end=" ")
    print(f"area {area[i]:,.0f};", end=" ")
    print(f"it was {Y_test[i, 0]:.2f} and {Y_test[i, 1]:,.0f}")
print(f"{inside.mean():.1%} of {len(inside):,} pairs inside, 90 % asked for")
print(f"median area {np.median(area):,.0f}")
