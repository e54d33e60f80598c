"""Workers that serve one test after the other: each takes seconds to import what it needs."""

from typing import Final

import pytest

from grpo_tui.child import Worker
from grpo_tui.session import Session

SHARED: Final = ("introspect", "tokenize")
"""Those that know nothing of a project or of the hub."""


class Kept(Worker):
    """A worker that outlives the session it serves; it ends with the tests."""

    def close(self) -> None:
        """Stay for the next test."""


_KEPT: dict[str, Kept] = {}


def keep_workers(patch: pytest.MonkeyPatch) -> None:
    """Let sessions take the kept workers until `patch` is undone."""
    usual = Session.worker

    def worker(self: Session, name: str) -> Worker:
        if name not in SHARED:
            return usual(self, name)
        kept = _KEPT.setdefault(name, Kept(name))
        return self.extra_worker(name, lambda: kept)

    patch.setattr(Session, "worker", worker)
