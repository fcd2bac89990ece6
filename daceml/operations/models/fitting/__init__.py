"""Models of operations are fitted here, with scikit-learn and torch; using them needs neither."""
