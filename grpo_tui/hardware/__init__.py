"""The machine: its GPUs, and what is installed on it."""
