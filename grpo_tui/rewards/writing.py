"""A `rewards.py` written from templates: complete, readable, and free of anything of ours."""

import ast
import builtins
import io
import json
import keyword
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grpo_tui.rewards.kinds import FOLDER, TEMPLATES, Proposal, Template

HEAD = '"""What the model is paid for: one function per aspect, one number per completion."""'
PARTS = "grpo_tui.rewards.templates."
"""What a template imports from there is written out with it."""

FOR_US = re.compile(r"  # (?:noqa|type: ignore).*")
WIDTH = 100
"""Characters of a value in one line; longer ones are written over several."""


def render_rewards(choices: Sequence[Proposal]) -> str:
    """The file with these functions, in order, and the parts they call.

    Raises ValueError for two functions of one name, a name that Python cannot have, or an unknown parameter.
    """
    parts = _parts([TEMPLATES[choice.template].code for choice in choices])
    sources = [TEMPLATES[choice.template].code for choice in choices] + parts
    for choice in choices:
        _check(choice, sources)
    bodies = [_body(_written(choice)) for choice in choices] + [_body(part) for part in parts]
    gap = "\n\n\n" if bodies[0].startswith("def ") else "\n\n"
    text = "\n".join([HEAD, "", *_imports(sources)]) + gap + "\n\n\n".join(bodies) + "\n"
    names = list(_top_names(ast.parse(text)))
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two things have one name: {', '.join(twice)}")
    return text


def _check(choice: Proposal, sources: Sequence[str]) -> None:
    template = TEMPLATES[choice.template]
    unknown = sorted(set(choice.parameters) - set(template.parameters))
    columns = [str(choice.parameters[name]) for name in template.columns if name in choice.parameters]
    taken = set().union(*map(_global_names, sources))
    bad = [
        name
        for name in (choice.name, *columns)
        if not name.isidentifier() or keyword.iskeyword(name) or (name in taken and name not in template.columns)
    ]
    if unknown or bad:
        raise ValueError(f"{choice.name}: unknown parameters {unknown}, or impossible names {bad}")


def _written(choice: Proposal) -> str:
    """The template with the names and values of the choice."""
    template = TEMPLATES[choice.template]
    code = template.code
    for name, value in choice.parameters.items():
        if name in template.constants and value != template.parameters[name]:
            old = str(ast.get_source_segment(template.code, template.constants[name]))
            code = code.replace(old, f"{template.key}_{name}".upper() + f" = {literal(value)}", 1)
    columns = {name: str(choice.parameters.get(name, name)) for name in template.columns}
    return _renamed(code, template, choice.name, columns)


def _renamed(code: str, template: Template, name: str, columns: Mapping[str, str]) -> str:
    """The code under the user's name of the function and of the columns; names of its own give way to those."""
    own = re.compile(rf"({template.key}|{template.key.upper()})(_\w+)?")
    lines = code.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    depth, changes = 0, []
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        depth += (token.string in "([{") - (token.string in ")]}") if token.type == tokenize.OP else 0
        is_keyword = depth > 0 and after.string == "="
        if token.type != tokenize.NAME or before.string == "." or is_keyword:
            continue
        found = own.fullmatch(token.string)
        if found:
            new = (name.upper() if found[1].isupper() else name) + (found[2] or "")
        elif token.string in columns:
            new = columns[token.string]
        else:
            new = token.string + "_" if token.string in columns.values() else token.string
        if new != token.string:
            changes.append((token.start, token.end, new))
    for (row, start), (_, end), new in reversed(changes):
        lines[row - 1] = lines[row - 1][:start] + new + lines[row - 1][end:]
    return "".join(lines)


def _body(code: str) -> str:
    """What stands below docstring and imports."""
    nodes = ast.parse(code).body
    last = max(node.end_lineno or 0 for node in nodes if _is_import(node) or node is nodes[0])
    lines = code.splitlines()[last:]
    return "\n".join(FOR_US.sub("", line) for line in lines).strip("\n")


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _parts(codes: Sequence[str]) -> list[str]:
    """The parts that these files import, each once, those that are called after those that call them."""
    nodes = [node for code in codes for node in ast.parse(code).body if isinstance(node, ast.ImportFrom)]
    names = dict.fromkeys(str(node.module).removeprefix(PARTS) for node in nodes if str(node.module).startswith(PARTS))
    found = [(FOLDER / f"{name}.py").read_text("utf-8") for name in names]
    deeper = _parts(found) if found else []
    return [part for part in found if part not in deeper] + deeper


def _imports(codes: Sequence[str]) -> list[str]:
    modules: set[str] = set()
    names: dict[str, set[str]] = {}
    for node in (node for code in codes for node in ast.parse(code).body):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not str(node.module).startswith(PARTS):
            names.setdefault(str(node.module), set()).update(alias.name for alias in node.names)
    return [
        *(f"import {module}" for module in sorted(modules)),
        *(f"from {module} import {', '.join(sorted(names[module]))}" for module in sorted(names)),
    ]


def _global_names(code: str) -> set[str]:
    """Names that the code takes from Python, from its imports or from parts: no function or column can be called so."""
    tree = ast.parse(code)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imported = {alias.name for node in ast.walk(tree) if _is_import(node) for alias in node.names}  # type: ignore[attr-defined]
    return {name for name in used if hasattr(builtins, name)} | imported


def _top_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def literal(value: Any, indent: int = 0) -> str:
    """A value as Python code, with the quotes and breaks that formatters leave alone."""
    if isinstance(value, str):
        is_raw = "\\" in value and '"' not in value and not value.endswith("\\") and value.isprintable()
        return f'r"{value}"' if is_raw else json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list | tuple):
        return repr(value)
    start, end = {dict: ("{", "}"), list: ("[", "]")}.get(type(value), ("(", ")"))
    for inner in (0, indent + 4):  # in one line, or else one item a line
        items = [
            f"{literal(item)}: {literal(value[item], inner)}" if isinstance(value, dict) else literal(item, inner)
            for item in value
        ]
        line = start + ", ".join(items) + ("," if isinstance(value, tuple) and len(items) == 1 else "") + end
        if not items or (len(line) + indent <= WIDTH and "\n" not in line):
            return line
    return start + "".join(f"\n{' ' * (indent + 4)}{item}," for item in items) + f"\n{' ' * indent}{end}"
