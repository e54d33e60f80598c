"""Functions added to a rewards file that is there already: what it lacks is appended, nothing in it is changed."""

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping

from grpo_tui.problem import Problem


def names_in(code: str) -> frozenset[str]:
    """Names that the top level of `code` defines; none where it cannot be read."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return frozenset()
    return frozenset(name for node in tree.body for name in _defined(node))


def free_name(wanted: str, code: str) -> str:
    """`wanted`, or with a number behind it where `code` has the name already."""
    taken = names_in(code)
    numbered = (wanted if number == 1 else f"{wanted}_{number}" for number in range(1, len(taken) + 2))
    return next(name for name in numbered if name not in taken)


def merged(code: str, addition: str) -> str | Problem:
    """`code` with the imports, functions and constants of `addition` that it lacks.

    A helper that both have in the same words is not repeated; one of the same name that means another thing gets a
    number in the addition. A Problem where that cannot be, or where `code` cannot be read.
    """
    try:
        present, added = ast.parse(code), ast.parse(addition)
    except (SyntaxError, ValueError) as error:
        return Problem("rewards", f"The file cannot be read: {error}.", "Mend it first.")
    here = {name: ast.dump(node) for node in present.body for name in _defined(node)}
    others = {
        name: free_name(name, code + addition)
        for node in added.body
        if not isinstance(node, ast.Import | ast.ImportFrom)
        for name in _defined(node)
        if name in here and here[name] != ast.dump(node)
    }
    if others:
        addition = _renamed(addition, others)
        added = ast.parse(addition)
        left = {node.id for node in ast.walk(added) if isinstance(node, ast.Name)} & others.keys()
        if left:  # in the braces of an f-string, which is one token up to Python 3.11
            what = f"`{min(left)}` is defined in it already, and means another thing."
            return Problem("rewards", what, "Rename it there, then add the function again.")
    lines = addition.splitlines(keepends=True)
    imports: list[str] = []
    bodies: list[str] = []
    for node in added.body:
        names = list(_defined(node))
        if not names:
            continue  # the docstring of the file
        clash = next((name for name in names if name in here and here[name] != ast.dump(node)), "")
        if clash:
            what = f"`{clash}` is defined in it already, and means another thing."
            return Problem("rewards", what, "Rename it there, then add the function again.")
        if names[0] in here:
            continue
        text = _text(node, lines)
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(text)
        else:
            bodies.append(text)
    return _with_imports(code, present, imports).rstrip("\n") + "\n" + "".join(_spaced(bodies))


def _renamed(code: str, names: Mapping[str, str]) -> str:
    """`code` with other names in the place of `names`, wherever they stand by themselves."""
    lines = code.splitlines(keepends=True)
    found: list[tuple[int, int, str]] = []
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.NAME and token.string in names and before != ".":
            found.append((*token.start, token.string))
        before = token.string
    for row, column, name in reversed(found):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + names[name] + line[column + len(name) :]
    return "".join(lines)


def _spaced(bodies: list[str]) -> Iterator[str]:
    """Functions two lines apart, constants together."""
    after_constant = False
    for body in bodies:
        is_function = body.startswith(("def ", "async def ", "class ", "@"))
        yield ("\n\n" if is_function or not after_constant else "") + body
        after_constant = not is_function


def _text(node: ast.stmt, lines: list[str]) -> str:
    """The lines of a statement, with its decorators and what is said above and behind it."""
    decorators = getattr(node, "decorator_list", [])
    start = min([node.lineno, *(each.lineno for each in decorators)])
    while start > 1 and lines[start - 2].startswith("#"):
        start -= 1  # what is said above it
    return "".join(lines[start - 1 : node.end_lineno]).rstrip("\n") + "\n"


def _with_imports(code: str, tree: ast.Module, imports: list[str]) -> str:
    """`code` with more imports, behind those that it has, or behind its docstring."""
    if not imports:
        return code
    heads: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    if not heads and tree.body and ast.get_docstring(tree) is not None:
        heads = tree.body[:1]
    lines = code.splitlines(keepends=True)
    at = (heads[-1].end_lineno or 0) if heads else 0
    gap = "" if heads and isinstance(heads[-1], ast.Import | ast.ImportFrom) else "\n"
    before = "".join(lines[:at])
    before += "" if not before or before.endswith("\n") else "\n"
    return before + (gap if before else "") + "".join(imports) + ("" if before else "\n\n") + "".join(lines[at:])


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
