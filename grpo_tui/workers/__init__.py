"""Child processes that need the heavy libraries. They are started by grpo_tui.child, never imported."""
