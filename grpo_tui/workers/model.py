"""Ask the Hugging Face hub about a model, and fetch what planning needs of it: configuration and tokenizer, no weights.

`look`    {name, revision} -> {commit, files_bytes, weight_bytes, gated}
`fetch`   {name, revision} -> {folder, commit}; progress {text}
`log_in`  {token} -> {user}; the token goes into Hugging Face's own store and nowhere else
"""

from grpo_tui.child import open_channel, serve

channel = open_channel()

from collections.abc import Callable  # noqa: E402 - the channel must be open before anything can print
from fnmatch import fnmatch  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from huggingface_hub import HfApi, hf_hub_download, login  # noqa: E402
from huggingface_hub.errors import (  # noqa: E402
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from grpo_tui.problem import Problem  # noqa: E402

Progress = Callable[[dict[str, Any]], None]

WANTED = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.jinja",
    "*.tiktoken",
    "model.safetensors.index.json",
)
"""What is fetched; files in subfolders are not."""

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")

_LOG_IN = "Ask for access on its page at huggingface.co, then log in with: hf auth login"


def explain(error: BaseException, name: str, revision: str) -> Problem:
    """What the hub's library raised, in a sentence that says what to do."""
    if isinstance(error, GatedRepoError):
        return Problem(name, "The model is gated: its owner grants access, and you have none yet.", _LOG_IN)
    if isinstance(error, RevisionNotFoundError):
        return Problem(name, f"It has no revision {revision!r}.", "Correct the revision, or leave it empty.")
    if isinstance(error, RepositoryNotFoundError):
        return Problem(
            name,
            "The hub has no model of this name, or it is private and you are not logged in.",
            "Correct the name as `owner/name`; for a private model log in with: hf auth login",
        )
    if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
        return Problem(name, "It has no config.json, so transformers cannot load it.", "Choose another model.")
    if isinstance(error, HFValidationError):
        return Problem(name, "This is no name of a model on the hub.", "Write it as `owner/name`.")
    if isinstance(error, OfflineModeIsEnabled):
        return Problem(name, "HF_HUB_OFFLINE keeps this machine off the hub.", "Unset it, or give a local folder.")
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        if status in (401, 403):
            return Problem(name, f"The hub refuses access (status {status}).", _LOG_IN)
        if status == 429:
            return Problem(name, "The hub takes no more requests for now (status 429).", "Wait some minutes.")
        return Problem(name, f"The hub answers with status {status}.", "Try again later, or give a local folder.")
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError):
        return Problem(name, f"The files cannot be written: {error.strerror}.", "Free some room in the cache.")
    return Problem(
        name,
        f"The hub cannot be reached ({type(error).__name__}).",
        "Check the network and proxy settings (HTTPS_PROXY, HF_ENDPOINT), or give a local folder.",
    )


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return "/" not in name and any(fnmatch(name, pattern) for pattern in patterns)


def look(params: dict[str, Any], progress: Progress) -> dict[str, Any] | Problem:
    """How large the model and its small files are, and whether it is gated. Nothing is fetched."""
    name, revision = str(params["name"]), str(params.get("revision") or "")
    try:
        info = HfApi().model_info(name, revision=revision or None, files_metadata=True)
    except Exception as error:  # noqa: BLE001 - httpx and huggingface_hub raise many kinds, each is explained
        return explain(error, name, revision)
    sizes = {file.rfilename: int(file.size or 0) for file in info.siblings or ()}
    return {
        "commit": info.sha or "",
        "files_bytes": sum(size for file, size in sizes.items() if _matches(file, WANTED)),
        "weight_bytes": sum(size for file, size in sizes.items() if _matches(file, WEIGHTS)),
        "gated": bool(info.gated),
        "files": sorted(sizes),
    }


def fetch(params: dict[str, Any], progress: Progress) -> dict[str, Any] | Problem:
    """Fetch configuration and tokenizer into the hub's cache; what is there already is not fetched again."""
    name, revision = str(params["name"]), str(params.get("revision") or "")
    progress({"text": f"Asking the hub about {name}…"})
    found = look(params, progress)
    if isinstance(found, Problem):
        return found
    wanted = [file for file in found["files"] if _matches(file, WANTED)]
    if "config.json" not in wanted:
        return explain(EntryNotFoundError("config.json"), name, revision)
    folder = Path()
    for file in sorted(wanted, key=lambda one: one != "config.json"):
        progress({"text": f"Fetching {file}…"})
        try:
            folder = Path(hf_hub_download(name, file, revision=revision or None)).parent
        except Exception as error:  # noqa: BLE001 - as above
            return explain(error, name, revision)
    return {"folder": str(folder), "commit": found["commit"], "weight_bytes": found["weight_bytes"]}


def log_in(params: dict[str, Any], progress: Progress) -> dict[str, Any] | Problem:
    """Hand a token to Hugging Face's own store, after the hub has accepted it."""
    token = str(params["token"]).strip()
    try:
        user = HfApi().whoami(token=token)
        login(token=token, add_to_git_credential=False, skip_if_logged_in=False)
    except Exception as error:  # noqa: BLE001 - as above; the text of an error may repeat the token, so it is not shown
        if isinstance(error, HfHubHTTPError) and error.response.status_code in (401, 403):
            return Problem(
                "token", "The hub does not accept this token.", "Copy it again from huggingface.co/settings."
            )
        return explain(error, "token", "")
    return {"user": str(user.get("name", ""))}


if __name__ == "__main__":
    serve({"look": look, "fetch": fetch, "log_in": log_in}, channel)
