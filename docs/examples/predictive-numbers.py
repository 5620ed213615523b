from scipy.stats import norm

method = METHOD
method.fit(X_train, y_train)

law, y_test = method.predict_dist(X_test), y_test.to_numpy()
low, high = law.quantile([0.05, 0.95])
for i in range(4):
    print(f"90 %: {low[i]:8,.0f} to {high[i]:8,.0f}; it was {y_test[i]:,.0f}")
between = (low <= y_test) & (y_test <= high)
print(f"{between.mean():.1%} of {len(y_test):,} new rows between them")

density = method.log_prob(X_test, y_test)
everyone = norm(y_train.mean(), y_train.std()).logpdf(y_test)
print(f"NLPD {-density.mean():.2f}, of one law for all {-everyone.mean():.2f}")
