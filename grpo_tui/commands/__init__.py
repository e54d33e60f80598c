"""The commands: each reads its arguments, asks the engine, and prints for people or as JSON."""
