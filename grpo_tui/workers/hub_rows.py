"""Worker: rows of a data set on the hub, streamed, never downloaded as a whole."""

from grpo_tui.child import Progress, open_channel, serve

channel = open_channel()

import json  # noqa: E402  # the channel first
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from grpo_tui.inert import one_line  # noqa: E402
from grpo_tui.problem import Problem  # noqa: E402

HEAD = 200

_held: tuple[tuple[str, ...], int, Iterator[dict[str, Any]]] | None = None
"""The stream that is open: what it reads, the number of its next row, and the rows."""


def _stream(params: dict[str, Any]) -> Any:
    import datasets  # noqa: TID251  # a worker

    return datasets.load_dataset(
        params["name"],
        params["config"] or None,
        split=params["split"] or None,
        revision=params["revision"] or None,
        streaming=True,
    )


def _standing(name: str, revision: str) -> Problem | None:
    """What the hub says against this name and revision; None too where it is not reached and a copy is here."""
    import datasets  # noqa: TID251  # a worker
    import huggingface_hub

    try:
        found = huggingface_hub.HfApi().dataset_info(name, revision=revision or None)
    except Exception as error:  # noqa: BLE001  # the hub's errors have no common class
        copy = Path(datasets.config.HF_DATASETS_CACHE) / name.replace("/", "___")
        return None if _names(error) & _UNREACHED and copy.exists() else _explained(name, error)
    if found.id != name:
        return Problem(
            f"data set {name}",
            f"It was renamed: it is called {one_line(found.id, 100)} now.",
            "Use the new name: the old one may be given to another.",
        )
    return None


def open_hub(params: dict[str, Any], progress: Progress) -> dict[str, Any] | Problem:
    """Splits, types and the first rows of `name` (`config`, `split`, `revision` may be empty)."""
    import datasets  # noqa: TID251  # a worker

    name = params["name"]
    if problem := _standing(name, params["revision"]):
        return problem
    try:
        configs = datasets.get_dataset_config_names(name, revision=params["revision"] or None)
        if not params["config"] and len(configs) > 1 and "default" not in configs:
            return Problem(
                f"data set {name}",
                "It has several configurations, and none is the default one.",
                f"Choose one: {one_line(', '.join(configs[:30]), 400)}.",
            )
        if params["config"] and params["config"] not in configs:
            return Problem(
                f"data set {name}",
                f"It has no configuration '{one_line(params['config'], 60)}'.",
                f"Configurations: {one_line(', '.join(configs[:30]), 400)}.",
            )
        loaded = _stream({**params, "split": ""})
        splits = list(loaded)
        split = params["split"] or ("train" if "train" in splits else splits[0])
        if split not in splits:
            return Problem(f"data set {name}", f"It has no split '{split}'.", f"Splits: {', '.join(splits)}.")
        chosen = loaded[split]
        rows = [_plain(row) for row in chosen.take(HEAD)]
        info = chosen.info.splits or {}
        count = info[split].num_examples if split in info else None
        features = chosen.features or {}
    except Exception as error:  # noqa: BLE001  # the hub's errors have no common class
        return _explained(name, error)
    types = {key: str(feature.dtype) for key, feature in features.items() if hasattr(feature, "dtype")}
    types = {
        key: "string" if kind == "large_string" else kind for key, kind in types.items() if kind not in ("dict", "list")
    }
    return {
        "split": split,
        "splits": splits,
        "config": params["config"],
        "rows": rows,
        "more": len(rows) == HEAD,
        "count": count or None,
        "types": types,
    }


def rows(params: dict[str, Any], progress: Progress) -> dict[str, Any] | Problem:
    """`count` rows from row `start` on; cheap when it goes on where the last call ended."""
    global _held
    key = tuple(str(params[one]) for one in ("name", "config", "split", "revision"))
    start, count = int(params["start"]), int(params["count"])
    try:
        if _held is None or _held[0] != key or _held[1] != start:
            stream = _stream(params)
            _held = (key, start, iter(stream.skip(start) if start else stream))
        page = []
        for row in _held[2]:
            page.append(_plain(row))
            if len(page) == count:
                break
        _held = (key, start + len(page), _held[2])
    except Exception as error:  # noqa: BLE001  # the hub's errors have no common class
        return _explained(params["name"], error)
    return {"rows": page}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """The row as JSON holds it; images, dates and the like as the text that Python shows."""
    plain: dict[str, Any] = json.loads(json.dumps(row, default=str))
    return plain


_UNREACHED = {
    "OfflineModeIsEnabled",
    "LocalEntryNotFoundError",
    "ConnectionError",
    "ConnectError",
    "ConnectTimeout",
    "NewConnectionError",
}


def _names(error: BaseException) -> set[str]:
    """The kinds of the error and of those behind it."""
    names: set[str] = set()
    one: BaseException | None = error
    while one is not None:
        names.add(type(one).__name__)
        one = one.__cause__ or one.__context__
    return names


def _explained(name: str, error: Exception) -> Problem:
    kinds = _names(error)
    text = one_line(str(error), 300)
    where = f"data set {name}"
    if "GatedRepoError" in kinds or "is a gated dataset" in text:
        return Problem(
            where, "Its owner gives access only to those who asked.", "Ask on its page, then run `hf auth login`."
        )
    if "RevisionNotFoundError" in kinds:
        return Problem(where, "It has no such revision.", "Name a branch, a tag or a commit that exists.")
    if kinds & _UNREACHED:
        return Problem(
            where, "The hub cannot be reached, and there is no copy of it here.", "Connect, or name a local file."
        )
    if kinds & {"DatasetNotFoundError", "RepositoryNotFoundError"}:
        return Problem(
            where,
            "The hub has no such data set, or it is private; nor is there a local file of this name.",
            "Check the spelling (owner/name); for a private one run `hf auth login`.",
        )
    return Problem(where, f"It could not be read: {type(error).__name__}: {text}.", "Check its page on the hub.")


if __name__ == "__main__":
    serve({"open": open_hub, "rows": rows}, channel)
