"""The benchmark: what each model of an experiment costs, and what changed since an earlier result."""
