"""The monitor: one screen on one run, made of nothing but what stands in the run's folder."""
