"""Reward functions read from their source, without running any of it.

How TRL calls them (1.16, `GRPOTrainer._calculate_rewards`): by keyword, with `prompts`, `completions`,
`completion_ids`, every other column of the data set, `trainer_state`, `log_extra` and `log_metric`.
"""

import ast
import difflib
import importlib.util
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path
from types import MappingProxyType

from grpo_tui import regular
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

CODE_BYTES = 16 << 20
"""No file of reward functions is so large; what is larger is not read."""

PASSED = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments")
"""Names that TRL passes besides the columns (`environments` only when training with environments)."""

ALWAYS = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
"""Of these, the names passed in every call: without `**kwargs` a function must take all of them."""

NOT_PASSED = frozenset({"prompt", "completion", "completion_ids"})
"""Columns of the data set that never reach a reward function under their own name."""

SYNONYMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        name: tuple(other for other in group if other != name)
        for group in (
            ("answer", "solution", "answers", "solutions", "gold", "label", "target", "ground_truth", "reference"),
            ("completions", "responses", "outputs", "completion", "response", "generations"),
            ("prompts", "questions", "prompt", "question", "inputs"),
        )
        for name in group
    }
)
"""What people call the same thing, for proposals."""


TRL_REWARDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "accuracy_reward": ("completions", "solution"),
        "reasoning_accuracy_reward": ("completions", "solution"),
        "think_format_reward": ("completions",),
    }
)
"""Reward functions of `trl.rewards` (1.16) that are passed as they are, and what they require."""


@dataclass(frozen=True, kw_only=True)
class FunctionSource:
    """One reward function as it stands in a file."""

    name: str
    kind: str = "function"
    """`function`, `lambda`, `instance` (of a class with `__call__`), `partial` or `import`."""

    parameters: tuple[str, ...] = ()
    """Names that can be given by keyword, in order."""

    required: tuple[str, ...] = ()
    """Those without a default."""

    positional_only: tuple[str, ...] = ()
    has_kwargs: bool = False
    is_async: bool = False
    doc: str = ""
    lines: tuple[int, int] = (0, 0)
    """First and last line, from 1, decorators included."""

    code: str = ""
    file: str = ""
    origin: str = ""
    """Of what is imported from `trl.rewards`: its name there."""

    @property
    def where(self) -> str:
        """File, line and name, for a problem."""
        return f"{self.file}:{self.lines[0]} {self.name}"


def read_functions(path: Path) -> tuple[FunctionSource, ...] | Problem:
    """The plausible reward functions of a file, in order; a name defined twice stands there twice."""
    text = read_text(path)
    return text if isinstance(text, Problem) else read_code(text, path.name)


def read_text(path: Path) -> str | Problem:
    """The text of a file of reward functions."""
    try:
        return regular.read(path, CODE_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        return Problem(str(path), f"The file cannot be read: {why}.", "Check the path and save it as UTF-8 text.")


def read_code(text: str, file: str = "rewards.py") -> tuple[FunctionSource, ...] | Problem:
    """`read_functions` for text that is not a file yet."""
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        where = f"{file}:{line}" if line else file
        return Problem(where, f"This is not Python: {one_line(said, 200)}.", "Correct the line; nothing was run.")
    found = _Module(tree, text, file)
    return tuple(function for node in tree.body for function in found.functions(node))


def duplicates(names: Sequence[str]) -> tuple[str, ...]:
    """Names that stand more than once, in order."""
    return tuple(name for name, count in Counter(names).items() if count > 1)


def check_signatures(
    functions: Sequence[FunctionSource], columns: Sequence[str], names: Sequence[str] | None = None
) -> list[Problem]:
    """What would make TRL's call of these functions fail, or teach nothing, found before anything is loaded.

    `columns` are those of the prepared data set. With `names`, only these functions are looked at, and a name that is
    not there is a problem.
    """
    problems: list[Problem] = []
    if names is not None:
        known = {function.name for function in functions}
        problems += [_missing(name, functions) for name in names if name not in known]
        problems += [_chosen_twice(name) for name in duplicates(names)]
        functions = [function for function in functions if function.name in names]
    problems += doubled(functions)
    for function in functions:
        problems += check_signature(function, columns)
    return problems


def doubled(functions: Sequence[FunctionSource]) -> list[Problem]:
    """Functions that are defined more than once: Python takes the last, which is seldom what was meant."""
    return [_defined_twice(name, functions) for name in duplicates([function.name for function in functions])]


def nearest(name: str, candidates: Sequence[str]) -> str:
    """The candidate that `name` most probably means; empty when none is near."""
    by_meaning = [other for other in SYNONYMS.get(name, ()) if other in candidates]
    by_spelling = difflib.get_close_matches(name, candidates, 1, 0.7)
    return (by_meaning + by_spelling + [""])[0]


def check_signature(function: FunctionSource, columns: Sequence[str]) -> list[Problem]:
    """The same for one function."""
    if function.kind == "import" and not function.origin:
        return []  # its parameters stand in another file
    reachable = [*PASSED, *(column for column in columns if column not in NOT_PASSED)]
    problems = [_unknown(function, name, reachable) for name in function.required if name not in reachable]
    if function.positional_only:
        names = ", ".join(function.positional_only)
        problems.append(
            Problem(function.where, f"{names} can only be given by position.", "Remove the `/`: TRL passes keywords.")
        )
    passed = [*ALWAYS, *(column for column in columns if column not in NOT_PASSED)]
    refused = [name for name in passed if name not in function.parameters]
    if not function.has_kwargs and refused:
        shown = ", ".join(refused[:4]) + (" …" if len(refused) > 4 else "")
        problems.append(
            Problem(
                function.where,
                f"It takes no `**kwargs`, and TRL also passes {shown}.",
                "Add `**kwargs` to its parameters.",
            )
        )
    return problems


def missing_imports(code: str, file: str, folders: Sequence[Path]) -> list[Problem]:
    """Modules that the code imports, wherever in it, and that neither this interpreter nor one of `folders` has.

    The training would die at its first reward, after it has generated. Nothing is imported.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return []  # said by whoever reads the functions
    wanted: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        else:
            continue
        for name in names:
            wanted.setdefault(name.partition(".")[0], node.lineno)
    return [
        Problem(
            f"{file}:{line}",
            f"It imports {one_line(name, 60)}, which is not installed here.",
            f"Install it ({sys.executable} -m pip install {one_line(name, 60).replace('_', '-')}), or put it there.",
        )
        for name, line in wanted.items()
        if not _is_there(name, [str(folder) for folder in folders])
    ]


def _is_there(name: str, folders: Sequence[str]) -> bool:
    if name in sys.stdlib_module_names:
        return True
    try:
        return importlib.util.find_spec(name) is not None or PathFinder.find_spec(name, folders) is not None
    except ValueError:  # blocked, or loaded without a specification
        return sys.modules.get(name) is not None


def _unknown(function: FunctionSource, name: str, reachable: Sequence[str]) -> Problem:
    near = nearest(name, reachable)
    columns = [each for each in reachable if each not in PASSED]
    if near:
        remedy = f"Rename the parameter to `{near}`, or map a column of that name."
    else:
        remedy = f"Columns are: {', '.join(columns) or 'none'}. Use one of them, or give the parameter a default."
    return Problem(
        function.where, f"It requires `{name}`, which is neither passed by TRL nor a column of the data.", remedy
    )


def _missing(name: str, functions: Sequence[FunctionSource]) -> Problem:
    names = [function.name for function in functions]
    near = nearest(name, names)
    file = functions[0].file if functions else "rewards file"
    remedy = f"Did you mean `{near}`?" if near else f"Functions there: {', '.join(names) or 'none'}."
    return Problem(file, f"There is no reward function `{name}`.", remedy)


def _defined_twice(name: str, functions: Sequence[FunctionSource]) -> Problem:
    lines = [function.lines[0] for function in functions if function.name == name]
    file = next(function.file for function in functions if function.name == name)
    return Problem(
        f"{file}:{lines[-1]}",
        f"`{name}` is defined {len(lines)} times (lines {', '.join(map(str, lines))}); only the last one counts.",
        "Give each function its own name.",
    )


def _chosen_twice(name: str) -> Problem:
    return Problem(
        "rewards",
        f"`{name}` is chosen more than once; TRL would merge them into one metric `rewards/{name}/mean`.",
        "Choose it once and raise its weight.",
    )


def check_opening_tag(functions: Sequence[FunctionSource], rendered_prompt: str) -> list[Problem]:
    """Format rewards that can never pay because the chat template already writes the opening tag into the prompt.

    `rendered_prompt` is a prompt rendered with the generation prompt; the completion starts after it (trl#6966).
    """
    tail = rendered_prompt.rstrip().rsplit("\n", 1)[-1]
    tag = tail[tail.rfind("<") :] if tail.endswith(">") and "<" in tail else ""
    if not tag.strip("<>").isidentifier():
        return []
    return [
        Problem(
            function.where,
            f"The chat template already ends the prompt with {tag}, so completions start after it, and this function "
            f"asks for {tag} at the start.",
            f"Make the opening {tag} optional and require only </{tag.strip('<>')}>, or switch it off in the template.",
        )
        for function in functions
        if any(anchored in function.code for anchored in (f"^{tag}", f"^\\s*{tag}", "think_format_reward"))
        or (function.name == "think_format_reward" and tag == "<think>")
    ]


class _Module:
    """What the top level of one file defines."""

    def __init__(self, tree: ast.Module, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.calls = {
            node.name: method
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            for method in node.body
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.name == "__call__"
        }
        self.named = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}

    def functions(self, node: ast.stmt) -> list[FunctionSource]:
        """The reward functions that this statement defines; a private name is none."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found = [self._read(node.name, "function", node, node.args, ast.get_docstring(node) or "")]
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found = self._assigned(node.targets[0].id, node, node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found = self._assigned(node.target.id, node, node.value)
        elif isinstance(node, ast.ImportFrom):
            found = [self._imported(node, alias) for alias in node.names if _reads_as_reward(alias)]
        else:
            found = []
        return [function for function in found if not function.name.startswith("_") and _plausible(function)]

    def _assigned(self, name: str, node: ast.stmt, value: ast.expr) -> list[FunctionSource]:
        if isinstance(value, ast.Lambda):
            return [self._read(name, "lambda", node, value.args, "")]
        if not isinstance(value, ast.Call):
            return []
        called = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        if called in self.calls:
            method = self.calls[called]
            found = self._read(name, "instance", node, method.args, ast.get_docstring(method) or "", method)
            return [found]
        if called == "partial" and value.args and isinstance(value.args[0], ast.Name):
            return self._partial(name, node, value, value.args[0].id)
        return []

    def _partial(self, name: str, node: ast.stmt, call: ast.Call, wrapped: str) -> list[FunctionSource]:
        if wrapped not in self.named:
            return [self._read(name, "partial", node, None, "")]
        inner = self.named[wrapped]
        given = {keyword.arg for keyword in call.keywords}
        found = self._read(name, "function", node, inner.args, ast.get_docstring(inner) or "", inner)
        required = tuple(each for each in found.required if each not in given)
        return [FunctionSource(**{**vars(found), "kind": "partial", "required": required})]

    def _imported(self, node: ast.ImportFrom, alias: ast.alias) -> FunctionSource:
        found = self._read(alias.asname or alias.name, "import", node, None, f"Imported from {node.module}.")
        if node.module not in ("trl", "trl.rewards") or alias.name not in TRL_REWARDS:
            return found
        taken = TRL_REWARDS[alias.name]
        return replace(found, parameters=taken, required=taken, origin=alias.name)

    def _read(
        self,
        name: str,
        kind: str,
        node: ast.stmt,
        arguments: ast.arguments | None,
        doc: str,
        body: ast.AST | None = None,
    ) -> FunctionSource:
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(each.lineno for each in decorators)])
        last = node.end_lineno or node.lineno
        positional, required, has_kwargs = _parameters(arguments)
        only = tuple(each.arg for each in arguments.posonlyargs if each.arg != "self") if arguments else ()
        return FunctionSource(
            name=name,
            kind=kind,
            parameters=positional,
            required=required,
            positional_only=only,
            has_kwargs=has_kwargs,
            is_async=isinstance(body or node, ast.AsyncFunctionDef),
            doc=doc,
            lines=(first, last),
            code="\n".join(self.text.splitlines()[first - 1 : last]),
            file=self.file,
        )


def _parameters(arguments: ast.arguments | None) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Names that can be given by keyword, those of them without a default, and whether `**kwargs` is there."""
    if arguments is None:
        return (), (), True
    ordered = arguments.posonlyargs + arguments.args
    without_default = {each.arg for each in ordered[: len(ordered) - len(arguments.defaults)]}
    without_default |= {
        each.arg for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None
    }
    names = tuple(each.arg for each in arguments.args + arguments.kwonlyargs if each.arg != "self")
    return names, tuple(name for name in names if name in without_default), arguments.kwarg is not None


def _reads_as_reward(alias: ast.alias) -> bool:
    name = f"{alias.name} {alias.asname or ''}"
    return any(word in name.lower() for word in ("reward", "score", "penalty", "punishment"))


def _plausible(function: FunctionSource) -> bool:
    """It takes completions, under that name or one that people use for it, or it stands elsewhere."""
    if function.kind in ("import", "partial"):
        return True
    taken = (*function.parameters, *function.positional_only)
    return any(name in taken for name in ("completions", *SYNONYMS["completions"][:2]))
