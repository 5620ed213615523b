import numpy as np
from sklearn.metrics import roc_auc_score

method = METHOD
method.fit(X_train, y_train)

proba = method.predict_proba(X_test)
for i in np.argsort(proba.max(axis=1))[:3]:  # where it is least sure
    for label in np.argsort(-proba[i])[:3]:
        print(f"{label}: {proba[i, label]:.0%},", end=" ")
    print(f"... it was {y_test[i]}")

plain = REFERENCE.fit(X_train, y_train)
noise = np.random.default_rng(0).permuted(X_test, axis=0)  # pixels, shuffled
is_noise = np.repeat([False, True], len(X_test))
for name, model in (("NAME", method), ("PLAIN", plain)):
    proba = model.predict_proba(np.concatenate([X_test, noise]))
    nlpd = -np.log(proba[np.arange(len(y_test)), y_test]).mean()
    right = np.mean(proba[: len(y_test)].argmax(axis=1) == y_test)
    entropy = -np.sum(proba * np.log(proba + 1e-12), axis=1)
    print(f"{name:18} NLPD {nlpd:.3f}, right {right:.1%},", end=" ")
    print(f"tells noise apart {roc_auc_score(is_noise, entropy):.3f}")
