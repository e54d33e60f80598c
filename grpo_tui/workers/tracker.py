"""Hand a key to a tracker's own store, by the tracker's own library.

`log_in` {tracker, key} -> {}; the key goes where the library keeps it and nowhere else
"""

from grpo_tui.child import open_channel, serve

channel = open_channel()

import importlib  # noqa: E402 - the channel must be open before anything can print
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

from grpo_tui.problem import Problem  # noqa: E402

Progress = Callable[[dict[str, Any]], None]


def log_in(params: dict[str, Any], progress: Progress) -> dict[str, Any] | Problem:
    """Give the key to the library, which asks its server about it and keeps it."""
    name = str(params["tracker"])
    try:
        library = importlib.import_module(name)
    except ImportError:
        return Problem(name, "The package is not installed.", f"Install it with: pip install {name}")
    try:
        accepted = library.login(key=str(params["key"]).strip(), relogin=True)
    except Exception as error:  # noqa: BLE001 - it raises many kinds; its text may repeat the key, so it is not shown
        what = f"The key was not accepted ({type(error).__name__})."
        return Problem(name, what, "Copy it again from the service's page, and check the network.")
    return {} if accepted else Problem(name, "The key was not accepted.", "Copy it again from the service's page.")


if __name__ == "__main__":
    serve({"log_in": log_in}, channel)
