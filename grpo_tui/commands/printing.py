"""How every command says that it cannot go on."""

import json
import sys
from typing import Any

from grpo_tui.inert import inert
from grpo_tui.problem import Problem


def refuse(as_json: bool, *problems: Problem, **beside: Any) -> int:
    """Print `problems`, as JSON with what is known `beside` them, and give the exit status 2."""
    if as_json:
        print(json.dumps({"problems": [problem.as_json() for problem in problems], **beside}))
    else:
        for problem in problems:
            print(inert(str(problem)), file=sys.stderr)
    return 2
