"""What went wrong, said so that a tired person can act on it."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that stands in the way. The engine returns it; screens show it; commands print it."""

    where: str
    """The file, row, setting or step it is about."""

    what: str
    """What is wrong there, as a whole sentence."""

    remedy: str
    """What to do about it, as a whole sentence."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what} {self.remedy}"

    def as_json(self) -> dict[str, str]:
        """The problem as commands print it with `--json`."""
        return asdict(self)
