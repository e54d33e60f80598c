"""Ready-made tasks: one folder each, found by path."""
