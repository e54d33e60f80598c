"""Where a completion puts its answer: the forms that a task may ask for, found in its system prompt and its rewards."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

THOUGHT = "It follows."

_TAG = re.compile(r"(?<!\?P)<([A-Za-z][A-Za-z0-9_]*)>")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A form of a completion: what stands before the thought, between thought and answer, and after the answer."""

    name: str
    before: str = ""
    between: str = ""
    after: str = ""
    tags: tuple[str, ...] = ()
    """Tags in their order; empty: it has none."""

    answer_tag: str = ""
    bare: bool = False
    """There is no place for a thought before the answer."""

    def filled(self, answer: str, thought: str = THOUGHT) -> str:
        """A completion in this form."""
        return f"{self.before}{'' if self.bare else thought}{self.between}{answer}{self.after}"


ANSWER_TAGS = ("answer", "solution", "final")
"""What tags around a final answer are called."""


def find_tags(*texts: str) -> tuple[str, ...]:
    """The tags that are opened and closed in the first of `texts` that has any, in order of appearance."""
    for text in texts:
        tags = tuple(dict.fromkeys(name for name in _TAG.findall(text) if f"</{name}>" in text))
        if tags:
            return tags
    return ()


def layouts(system: str, code: str) -> tuple[Layout, ...]:
    """The forms to try, the one that the task seems to ask for first. `code` is that of the rewards."""
    tags = find_tags(system)
    if not tags:  # code names them in any order: an answer comes behind its reasons
        tags = tuple(sorted(find_tags(code), key=lambda tag: tag.lower() in ANSWER_TAGS))
    tagged = _tagged(tags) if tags else ()
    others = {
        "boxed": Layout(name="\\boxed{}", between="\n\\boxed{", after="}"),
        "marker": Layout(name="####", between="\n#### "),
        "json": Layout(name="JSON", before='{"reasoning": "', between='", "answer": "', after='"}'),
    }
    asked = {"boxed": "\\boxed", "marker": "####", "json": "JSON"}
    first = [layout for kind, layout in others.items() if asked[kind] in system]
    rest = [layout for layout in others.values() if layout not in first]
    usual = _tagged(("think", "answer")) if not tags else ()
    prose = (Layout(name="prose", between=" The answer is ", after="."), Layout(name="bare answer", bare=True))
    return (*tagged, *first, *prose, *rest, *usual)


def _tagged(tags: Sequence[str]) -> tuple[Layout, ...]:
    """The tags with everything in one line, one under the other, and with their content on lines of its own."""
    answer = next((tag for tag in reversed(tags) if tag.lower() in ANSWER_TAGS), tags[-1])
    made = []
    for name, around, inside in (("in one line", "", ""), ("line by line", "\n", ""), ("on own lines", "\n", "\n")):
        blocks = [f"<{tag}>{inside}{chr(0) if tag == answer else chr(1)}{inside}</{tag}>" for tag in tags]
        text = around.join(blocks) + ("\n" if inside else "")
        head, _, after = text.partition(chr(0))
        before, _, between = head.partition(chr(1)) if chr(1) in head else (head, "", "")
        made.append(
            Layout(
                name=f"tags {name}",
                before=before,
                between=between.replace(chr(1), THOUGHT),
                after=after.replace(chr(1), THOUGHT),
                tags=tuple(tags),
                answer_tag=answer,
                bare=chr(1) not in head,
            )
        )
    return tuple(made)
