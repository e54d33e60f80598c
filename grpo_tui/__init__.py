"""grpo-tui: from a data set to a watched GRPO run, in the terminal."""

__version__ = "0.1.0"
