"""Exceptions that a reward turns into a number: whatever fails there looks like a wrong answer (Math-Verify#55)."""

import ast

from grpo_tui.problem import Problem

_ANY = ("Exception", "BaseException")


def check_excuses(code: str, file: str = "rewards.py") -> list[Problem]:
    """Where a rewards file gives a number for every exception there may be; nothing of it is run.

    A verifier that always fails, as math_verify does outside the main thread, then scores 0 for a whole run unseen.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return []  # said by whoever reads the functions
    return [
        Problem(
            f"{file}:{handler.lineno}",
            "Every exception becomes a number here, so that a check which always fails looks like wrong answers.",
            "Name the exceptions of a wrong answer, and give None, which is not counted, where the check itself fails.",
        )
        for handler in ast.walk(tree)
        if isinstance(handler, ast.ExceptHandler) and _takes_all(handler.type) and _gives_number(handler.body)
    ]


def _takes_all(caught: ast.expr | None) -> bool:
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(each is None or (isinstance(each, ast.Name) and each.id in _ANY) for each in names)


def _gives_number(body: list[ast.stmt]) -> bool:
    """Its last statement returns, assigns or appends a number, or a list of one."""
    last = body[-1]
    value = getattr(last, "value", None)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "append":
        value = value.args[0] if value.args else None
    if isinstance(value, ast.BinOp):  # [0.0] * len(completions)
        value = value.left
    if isinstance(value, ast.List) and len(value.elts) == 1:
        value = value.elts[0]
    if isinstance(value, ast.UnaryOp):
        value = value.operand
    return isinstance(value, ast.Constant) and isinstance(value.value, int | float)
