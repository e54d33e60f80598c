"""The plan: model shape, memory, batch arithmetic, settings with their reasons, and the files written."""
