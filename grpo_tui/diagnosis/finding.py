"""What was found out about a run, in the form in which commands and screens tell it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One change of the configuration."""

    key: str
    """Dotted key of `config.toml`, or `method`."""

    before: Any
    """None: it is not set."""

    after: Any
    """None: it is taken out."""

    trade_off: str

    def as_json(self) -> dict[str, Any]:
        """As commands print it."""
        return {"key": self.key, "from": self.before, "to": self.after, "trade_off": self.trade_off}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is so with a run, what shows it, and what to do about it."""

    id: str
    level: str
    """`fail` or `warn`."""

    title: str
    """What is so, as a sentence."""

    remedy: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[int, ...] = ()
    """Steps of the logged rows that show it."""

    completions: tuple[str, ...] = ()
    quoted: str = ""
    """The words of a log that it rests on."""

    advice: tuple[Advice, ...] = ()
    confidence: str = "certain"
    """`certain` or `likely`."""

    def as_json(self) -> dict[str, Any]:
        """As commands print it."""
        return {
            "id": self.id,
            "level": self.level,
            "title": self.title,
            "evidence": {
                "figures": dict(self.figures),
                "rows": list(self.rows),
                "completions": list(self.completions),
                "quoted": self.quoted,
            },
            "advice": [each.as_json() for each in self.advice],
            "remedy": self.remedy,
            "confidence": self.confidence,
        }
