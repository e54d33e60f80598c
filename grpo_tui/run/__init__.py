"""A run: its folder, its process, and the recorder inside it."""
