r"""Part: what stands in \boxed{…}."""

import re

MOST_BOXES = 3  # a final answer may be said again, but not tried over and over


def boxes_in(text: str) -> list[str]:
    r"""What stands in each \boxed{…}, braces matched; empty if one never closes, or there are too many."""
    pieces = re.split(r"\\boxed\s*\{", text)[1:]
    boxes = []
    for piece in pieces if len(pieces) <= MOST_BOXES else []:
        depth = 1
        for sign in re.finditer(r"\\.|[{}]", piece, re.DOTALL):  # \{ and \} are no braces
            depth += {"{": 1, "}": -1}.get(sign[0], 0)
            if depth == 0:
                boxes.append(piece[: sign.start()].strip())
                break
        else:
            return []
    return boxes
