"""The code that loads the rows in train.py: the library's own loaders, and what goes before them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_tui.dataset.files import Several
from grpo_tui.dataset.json_rows import JSONRows
from grpo_tui.dataset.source import Source
from grpo_tui.draft import DatasetAnswer

_WITHOUT_BROKEN_LINES = '''
def without_broken_lines(files, whole=(), **options):
    """The rows of JSON lines, without a value where a line is no JSON object: for one the library refuses a file.

    It is given copies, which are gone once the rows are read; files in `whole` do not have a row a line.
    """
    import tempfile

    import fsspec
    from datasets import config, load_dataset

    decoder = json.JSONDecoder(parse_int=str)  # a number may have any length

    def is_row(line):
        try:
            value = decoder.decode(line)
        except ValueError:
            return not line.strip(" \\t\\r\\n")
        return value is None or isinstance(value, dict)

    reading = {"encoding": options.get("encoding", "utf-8-sig"), "newline": "\\n", "compression": "infer"}
    writing = {"encoding": options.get("encoding", "utf-8"), "newline": "\\n"}
    Path(config.HF_DATASETS_CACHE).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=config.HF_DATASETS_CACHE) as folder:
        names = [file if file in whole else f"{folder}/{number}.jsonl" for number, file in enumerate(files)]
        for file, name in zip(files, names):
            if file not in whole:
                with fsspec.filesystem("file").open(file, "rt", **reading) as lines, open(name, "w", **writing) as copy:
                    copy.writelines(line if is_row(line) else "{}\\n" for line in lines)
        yield from load_dataset("json", data_files=names, split="train", cache_dir=folder, **options)
'''


def load_call(source: Source, relative_to: Path | None = None, answer: DatasetAnswer | None = None) -> str:
    """The Python expression that gives these very rows: a `datasets.Dataset`, or the rows one after the other.

    Its names come from `from datasets import Dataset, load_dataset, load_from_disk`, `import json`,
    `from pathlib import Path` and `load_code`. Files below `relative_to` are named from there. Where `answer` leaves
    broken lines out the library gets the files without them; such a row then has no value, and so no row behind it
    has another number than here.
    """
    options = source.options
    if source.format == "hub":
        named = {"name": options.get("config", ""), "revision": options.get("revision", ""), "split": source.split}
        return _call("load_dataset", [source.path], {key: value for key, value in named.items() if value})
    if source.format == "saved":
        loaded = _call("load_from_disk", [_written(Path(source.path), relative_to)], {})
        return f"{loaded}[{source.split!r}]" if source.splits else loaded
    files = [_written(file, relative_to) for file in source.files]
    where: Any = files[0] if len(files) == 1 else files
    if isinstance(source.reader, JSONRows) and source.reader.layout in ("columns", "indexed"):
        table = f"json.loads(Path({where!r}).read_text(encoding={options.get('encoding', 'utf-8-sig')!r}))"
        if source.reader.layout == "indexed":
            table = f"{{name: list(column.values()) for name, column in {table}.items()}}"
        return f"Dataset.from_dict({table})"
    if answer is not None and answer.faults.get("broken_line") == "leave_out":
        whole = [file for file, has_lines in zip(files, _have_lines(source), strict=True) if not has_lines]
        if len(whole) < len(files):
            given: dict[str, Any] = {"whole": whole, "encoding": options.get("encoding")}
            return _call("without_broken_lines", [files], {key: value for key, value in given.items() if value})
    named = {"data_files": where, "split": "train"}
    if source.format == "json":
        named |= {key: options[key] for key in ("field", "encoding") if key in options}
    if source.format == "csv":
        named |= {key: options[key] for key in ("delimiter", "decimal", "encoding") if key in options}
    return _call("load_dataset", [source.format], named)


def _have_lines(source: Source) -> list[bool]:
    """Has the file a row a line? For each of the source."""
    readers = source.reader.readers if isinstance(source.reader, Several) else (source.reader,)
    if not all(isinstance(reader, JSONRows) for reader in readers):
        return [False] * len(source.files)
    return [isinstance(reader, JSONRows) and reader.layout == "lines" for reader in readers]


def load_code(load: str) -> str:
    """Source of what the expression `load` calls beside the library; empty: nothing."""
    return _WITHOUT_BROKEN_LINES.strip("\n") + "\n" if load.startswith("without_broken_lines(") else ""


def _written(path: Path, relative_to: Path | None) -> str:
    if relative_to is not None and path.is_relative_to(relative_to.resolve()):
        return str(path.relative_to(relative_to.resolve()))
    return str(path)


def _call(name: str, values: Sequence[Any], named: Mapping[str, Any]) -> str:
    arguments = [repr(value) for value in values] + [f"{key}={value!r}" for key, value in named.items()]
    return f"{name}({', '.join(arguments)})"
