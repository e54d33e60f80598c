"""The reward functions: read, checked, and tried on sample completions."""
