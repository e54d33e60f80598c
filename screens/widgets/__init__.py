"""The pieces that more than one screen draws."""
