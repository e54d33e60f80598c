"""The terminal: one file per question, the monitor, and the widgets they share."""
