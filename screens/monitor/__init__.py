"""The monitor: what a run does, read from its folder alone."""
