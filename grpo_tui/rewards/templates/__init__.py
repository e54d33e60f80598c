"""The code that is written into the user's `rewards.py`, one file per reward function or part of it, each real Python.

A template is a file whose function has the file's name; its capital constants with a literal value are its parameters,
and the arguments of the function that TRL does not pass are columns of the data. Writing it out means giving both the
user's names and values. What it imports from this folder are parts: functions that several templates call.

`grpo_tui.rewards.catalogue` lists the templates and writes them out. Nothing here imports anything of ours but parts.
"""
