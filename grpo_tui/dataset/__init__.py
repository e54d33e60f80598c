"""The data: opened from any source, mapped to prompts, measured, and checked for faults."""
