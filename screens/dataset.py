"""The prompts to practise on: where they are, how a row becomes one, and what is wrong with some of them."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from grpo_tui.draft import Draft, Example
from grpo_tui.inert import inert, one_line
from grpo_tui.problem import Problem

from .dialogs import Show, Type, Write, listing, positive, whole_or_nothing
from .drawn import GLYPHS, Block, Choice, Column, Field, Fields, Rows
from .line import fit, wrap
from .step import FRAME_KEYS, Say, Step, Trouble
from .widgets.panel import head

if TYPE_CHECKING:
    from grpo_tui.survey import Data

TYPED = "typed"
BLOCKS = " ▁▂▃▄▅▆▇█"


AT_ONCE = 20_000
"""So many rows are looked at before anyone would read the first of them."""


class DatasetStep(Step, inherit_bindings=False):
    """Source, columns, system prompt and extraction."""

    NAME = "dataset"
    QUESTION = "What shall it practise on?"
    WHY = "Each row becomes a prompt; rewards see its answer, the model never does."
    HELP = (
        "Everything shown was really read: rows as they are, prompts as the model will see them, tokens counted by the "
        "model's own tokenizer. Nothing in your data is changed; rows are left out while training reads them. "
        "c shows the code that turns a row into a prompt, v a row as it is in the file, o any other row, a what the "
        "rule takes out of the answers and where it finds nothing, p the columns that training will have."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "raw", "row as it is"),
        Binding("c", "code", "code"),
        Binding("t", "template", "template"),
        Binding("a", "extraction", "what is taken", show=False),
        Binding("o", "other", "other row", show=False),
        Binding("p", "columns", "columns", show=False),
        Binding("d", "faults", "faults", show=False),
        *FRAME_KEYS,
    ]

    data: "Data | None" = None
    files: tuple[str, ...] = ()
    """Files of the project that may be data."""

    systems: tuple[tuple[str, str], ...] = ()
    """Name and text of the system prompts on offer."""

    def body(self) -> ComposeResult:
        yield Block(self._strip, id="strip")
        yield Fields("Columns", value_width=32, label_width=9, id="columns")
        yield Rows(
            "Rows",
            Column("row", 6, right=True),
            Column("prompt"),
            Column("answer", 12, right=True, rank=1),
            Column("tokens", 6, right=True, rank=2),
            Column("status", 8),
            empty="No rows yet.",
            id="rows",
        )
        yield Block(self._seen, id="seen")
        yield Rows(
            "Faults",
            Column("fault", 22),
            Column("rows", 8, right=True),
            Column("where", 22, rank=1),
            Column("then", 12),
            Column("", rank=2),
            empty="None was found.",
            id="faults",
        )

    def find(self, say: Say) -> object:
        # Also wanted where the data cannot be read, so they are no part of the result.
        self.files = tuple(self.session.data_files(self.draft))
        self.systems = tuple(self.session.system_prompts(self.draft))
        if not self.draft.dataset.source:
            return None
        draft = self.session.mapped(self.draft)
        if isinstance(draft, Problem):
            return draft
        first = self.session.glance(draft)
        if not isinstance(first, Problem) and (first.source.rows is None or first.source.rows > AT_ONCE):
            self.app.call_from_thread(self._begin, draft, first)
        data = self.session.data(draft, say)
        return data if isinstance(data, Problem) else (draft, data)

    def _begin(self, draft: Draft, data: "Data") -> None:
        """Show the first rows of a large source while the others are looked at."""
        if self.doing:
            self.data = data
            if draft.dataset != self.draft.dataset:
                self.answer(replace(self.draft, dataset=draft.dataset))
            self.refresh_body()

    def found(self, result: object) -> None:
        if result is None:
            self.data = None
            return
        draft: Draft
        draft, self.data = result  # type: ignore[misc]  # the pair that `find` made
        if draft.dataset != self.draft.dataset:
            self.answer(replace(self.draft, dataset=draft.dataset))

    # What is shown

    def refresh_body(self) -> None:
        self._show_fields()
        self._show_rows()
        self._show_faults()
        for block in self.query("#body Block").results(Block):
            block.redraw()

    def _show_fields(self) -> None:
        answer, data = self.draft.dataset, self.data
        sources = tuple(Choice(name, name) for name in self.files)
        fields = [
            Field(
                key="source",
                label="Source",
                value=one_line(answer.source, 80),
                current=answer.source,
                choices=(*sources, Choice(TYPED, "a file, a folder or a hub id…")),
                state="ok" if data else "",
                note=data.source.format if data else "",
            )
        ]
        if data:
            why = data.reasons
            columns = tuple(Choice(name, name) for name in data.choices)
            joins = (Choice(answer.prompt, one_line(answer.prompt, 60)),) if answer.prompt not in data.choices else ()
            rules = tuple(Choice(name, label, note) for name, label, note in self.session.extraction_rules())
            rule = next((choice.label for choice in rules if choice.value == answer.extract), answer.extract)
            systems = (
                *(Choice(text, name, one_line(text, 60)) for name, text in self.systems),
                Choice(TYPED, "write one…"),
            )
            if len(data.source.splits) > 1:
                fields.append(
                    Field(
                        key="split",
                        label="Split",
                        value=data.source.split,
                        choices=tuple(Choice(name, name) for name in data.source.splits),
                    )
                )
            fields += [
                Field(
                    key="prompt",
                    label="Prompt",
                    value=one_line(answer.prompt, 80),
                    current=answer.prompt,
                    choices=(*joins, *columns, Choice(TYPED, "join columns…", "a text with columns in braces")),
                    note=why.get("prompt", ""),
                    state="ok" if answer.prompt else "warn",
                ),
                Field(
                    key="answer",
                    label="Answer",
                    value=answer.answer,
                    current=answer.answer or "",
                    choices=(*columns, Choice("", "none", "the rewards need no right answer")),
                    note=why.get("answer", ""),
                    state="ok" if answer.answer else "",
                ),
            ]
            if answer.answer:
                fields.append(
                    Field(
                        key="extract",
                        label="Taken",
                        value=rule,
                        current=answer.extract,
                        choices=rules,
                        note=one_line(answer.extract_argument, 30) or why.get("extract", ""),
                    )
                )
            fields += [
                Field(
                    key="system",
                    label="System",
                    value=one_line(answer.system, 200),
                    current=answer.system,
                    choices=systems,
                ),
                Field(
                    key="max_prompt_tokens",
                    label="Longest",
                    value=str(answer.max_prompt_tokens or "no limit"),
                    current=str(answer.max_prompt_tokens or ""),
                    note="tokens; longer prompts are left out",
                    hint="Tokens; empty: no limit",
                    check=whole_or_nothing,
                ),
                Field(
                    key="examples",
                    label="Examples",
                    value=f"{len(answer.examples)} shown" if answer.examples else "none",
                    current=spelled_examples(answer.examples),
                    note="worked examples before every prompt",
                    hint="Question, a line with --- alone, answer; a line with === alone before the next one.",
                    long=True,
                ),
                Field(
                    key="eval_share",
                    label="Held out",
                    value=f"{answer.eval_share:.0%}" if answer.eval_share else "none",
                    current=f"{100 * answer.eval_share:g}" if answer.eval_share else "",
                    note=f"{data.held_out:,} prompts for trials in between" if data.held_out else "kept for trials",
                    hint="Percent of the prompts, chosen by their text; empty: none.",
                    check=percent_or_nothing,
                ),
            ]
        self.query_one("#columns", Fields).show(fields, "found from names and rows" if data else None)

    def _show_rows(self) -> None:
        text, table = self.palette.text, self.query_one("#rows", Rows)
        if self.data is None:
            table.show([])
            return
        table.most = 3 if self.size.height < 28 else 5 if self.size.height < 40 else 8
        cells = []
        for view in self.data.head:
            good = not view.trouble
            cells.append(
                (
                    text((f"{view.number + 1:,}", "muted")),
                    text((one_line(view.prompt, 300), "text")),
                    text(
                        (
                            one_line(view.answer, 40) or "none",
                            "text" if view.answer or not self.draft.dataset.answer else "warn",
                        )
                    ),
                    text((f"{view.tokens:,}" if view.tokens is not None else "–", "text")),
                    text((f"{GLYPHS['ok' if good else 'warn']} {'use' if good else 'drop'}", "ok" if good else "warn")),
                )
            )
        table.show(cells, f"{len(cells)} of {self.data.rows_words}")

    def _show_faults(self) -> None:
        text, table = self.palette.text, self.query_one("#faults", Rows)
        cells = []
        for fault in self.data.faults if self.data else ():
            where = ", ".join(str(number + 1) for number in fault.rows[:4]) + ("…" if fault.count > 4 else "")
            cells.append(
                (
                    text((fault.kind.replace("_", " "), "text")),
                    text((f"{fault.count:,}", "text bold")),
                    text((where, "muted")),
                    text((fault.choice.replace("_", " "), "warn" if fault.choice != "keep" else "muted")),
                    text((one_line(fault.text, 200), "muted")),
                )
            )
        empty = "None was found." if self.data is None or self.data.complete else "They are being looked for."
        table.show(cells, f"{len(cells)} kinds" if cells else "", empty=empty)
        table.display = self.data is not None

    def _strip(self, width: int) -> Sequence[Text]:
        if (data := self.data) is None:
            return []
        text, lengths = self.palette.text, data.lengths
        facts = [("rows", data.rows_words), ("to train on", f"{data.usable:,}" if data.complete else "counting…")]
        if lengths is not None:
            facts.append(("prompt tokens", f"p50 {lengths.p50:,}  p99 {lengths.p99:,}  longest {lengths.longest:,}"))
            if data.limit and data.longest < lengths.longest:
                facts[-1] = (facts[-1][0], f"{facts[-1][1]}, kept to {data.longest:,}")
        sizes = (12, 12, max(24, min(44, width - 26)))[: len(facts)]
        rows = [
            text(*(fit(text((label, "muted")), cells) for (label, _), cells in zip(facts, sizes, strict=True))),
            text(*(fit(text((value, "text bold")), cells) for (_, value), cells in zip(facts, sizes, strict=True))),
        ]
        if lengths is not None and width - sum(sizes) >= 10:
            rows[-1].append_text(
                text((histogram([bar.count for bar in lengths.histogram], min(20, width - sum(sizes))), "accent"))
            )
        if data.advice and self.size.height >= 30:
            rows += wrap(self.palette, data.advice, width, "muted")
        return rows

    def _seen(self, width: int) -> Sequence[Text]:
        if self.data is None or not self.data.head:
            return []
        text = self.palette.text
        view = self.data.head[min(self.query_one("#rows", Rows).cursor, len(self.data.head) - 1)]
        rows = [
            head(self.palette, width, "Prompt the model will see", reading=text((f"row {view.number + 1:,}", "muted")))
        ]
        if view.trouble:
            return [*rows, *wrap(self.palette, one_line(view.trouble, 400), width, "text", text((" ! ", "warn bold")))]
        for role, content in view.messages:
            shown = wrap(
                self.palette, inert(content, 2000), width, "text", text((f" {one_line(role, 9):<10}", "muted"))
            )
            rows += (
                shown if len(shown) <= 6 else [*shown[:5], text((f"           … {len(shown) - 5} more lines", "muted"))]
            )
        if self.draft.dataset.answer:
            rows.append(text((" expects   ", "muted"), (one_line(view.answer, 200) or "none", "text bold")))
        return rows

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Show the row under the cursor."""
        self.query_one("#seen", Block).redraw()

    # What is answered

    @on(Fields.Changed)
    def changed(self, event: Fields.Changed) -> None:
        """Another source, column, rule or system prompt."""
        answer = self.draft.dataset
        if event.key == "source":
            if event.value == TYPED:
                about = "JSONL, JSON, CSV, TSV, Parquet, a folder that save_to_disk wrote, or owner/name of the hub."
                self.app.push_screen(
                    Type("Source", answer.source, about, paths=self.session.project), self._take_source
                )
            else:
                self._take_source(event.value)
        elif event.key == "prompt" and event.value == TYPED:
            about = (
                "Names of columns in braces stand for their values: {question}. A list stands one item a line; "
                "{choices:letters} puts A., B., … before its items."
            )
            present = answer.prompt if answer.joins else f"{{{answer.prompt}}}"
            self.app.push_screen(
                Write("Prompt", present, about), lambda text: self._typed(text and text.strip(), prompt=text or "")
            )
        elif event.key == "system" and event.value == TYPED:
            about = "Stands before every prompt. Say in it how the answer shall be marked."
            self.app.push_screen(
                Write("System prompt", answer.system, about), lambda text: self._typed(text, system=text)
            )
        elif event.key == "extract" and (hint := self.session.argument_hint(event.value)):
            self.app.push_screen(
                Type("Taken", answer.extract_argument, hint),
                lambda text: self._typed(text, extract=event.value, extract_argument=text),
            )
        elif event.key == "max_prompt_tokens":
            self._set(max_prompt_tokens=int(event.value or 0))
        elif event.key == "extract":
            self._set(extract=event.value, extract_argument="")
        elif event.key == "eval_share":
            self._set(eval_share=float(event.value.replace(",", ".") or 0) / 100)
        elif event.key == "examples":
            self._take_examples(event.value)
        else:
            self._set(**{event.key: event.value})

    def _take_examples(self, text: str) -> None:
        examples = read_examples(text)
        if examples is None:
            self.notify("Each example needs a question, a line ---, and an answer.", severity="warning", markup=False)
            return
        self._set(examples=examples)

    def _set(self, **changes: object) -> None:
        dataset = replace(self.draft.dataset, **changes)  # type: ignore[arg-type]  # fields of DatasetAnswer
        self.answer(replace(self.draft, dataset=dataset), look=True)

    def _typed(self, text: str | None, **changes: object) -> None:
        if text is not None:
            self._set(**changes)

    def _take_source(self, name: str | None) -> None:
        if name:
            self.data = None
            self.answer(self.session.with_source(self.draft, name), look=True)

    @on(Rows.Picked)
    def picked(self, event: Rows.Picked) -> None:
        """Another choice for the fault under the cursor."""
        if event.rows.id != "faults" or self.data is None:
            self.action_raw()
            return
        fault = self.data.faults[event.index]
        following = fault.choices[(fault.choices.index(fault.choice) + 1) % len(fault.choices)]
        self._set(faults={**self.draft.dataset.faults, fault.kind: following})

    def action_raw(self) -> None:
        """The row under the cursor, as it is in the file."""
        if self.data is None or not self.data.head:
            return
        view = self.data.head[self.query_one("#rows", Rows).cursor]

        def rows(width: int) -> Sequence[Text]:
            return [
                row
                for name, value in (view.raw or {"": view.trouble}).items()  # a broken line has no value
                for row in wrap(
                    self.palette,
                    inert(str(value), 4000),
                    width,
                    "text",
                    self.palette.text((f"{one_line(name, 14):<15}", "muted")),
                )
            ]

        self.app.push_screen(Show(f"Row {view.number + 1:,} as it is", rows))

    def action_other(self) -> None:
        """Any row of the source, as it is and as the model will see it."""

        def typed(number: str | None) -> None:
            if number:
                self._read_row(int(number) - 1)

        self.app.push_screen(Type("Row", "", "Its number, from 1.", check=whole_or_nothing), typed)

    @work(thread=True, exclusive=True, group="row")
    def _read_row(self, number: int) -> None:
        found = self.session.row(self.draft, number)
        if isinstance(found, Problem):
            self.app.call_from_thread(self.app.notify, str(found), severity="error", markup=False)
            return

        def rows(width: int) -> Sequence[Text]:
            wide = {"as it is": found.raw, "as training takes it": found.prepared or {"": found.trouble}}
            lines: list[Text] = []
            for title, values in wide.items():
                lines.append(head(self.palette, width, title))
                for name, value in values.items():
                    lead = self.palette.text((f"{one_line(name, 14):<15}", "muted"))
                    lines += wrap(self.palette, inert(str(value), 4000), width, "text", lead)
            return lines

        self.app.call_from_thread(self.app.push_screen, Show(f"Row {number + 1:,}", rows))

    def action_extraction(self) -> None:
        """What the rule takes out of the first answers, and where it finds nothing."""
        if self.data is None or (found := self.data.extraction) is None:
            self.notify("No column is chosen for the answer.", markup=False)
            return

        def rows(width: int) -> Sequence[Text]:
            text = self.palette.text
            taken = found.looked_at - found.failed_count - found.missing_count
            lines = wrap(
                self.palette,
                f"Of the first {found.looked_at:,} rows: {taken:,} have an answer, in {found.failed_count:,} the rule "
                f"finds none, {found.missing_count:,} have nothing there.",
                width,
            )
            if found.failed:
                named = ", ".join(f"{number + 1:,}" for number in found.failed)
                lines += wrap(self.palette, f"Nothing found in rows {named}.", width, "text", text(("! ", "warn bold")))
            for each in found.yields:
                lines.append(text())
                lead = text((f"{each.row + 1:>6,}  ", "muted"))
                lines += wrap(self.palette, one_line(each.before, 400), width, "muted", lead)
                lines += wrap(self.palette, one_line(each.after, 200), width, "text bold", text(("     →  ", "accent")))
            return lines

        self.app.push_screen(Show("What is taken out of the answers", rows))

    def action_columns(self) -> None:
        """The columns as training will have them."""
        if self.data is None:
            return
        found = self.data.columns

        def rows(width: int) -> Sequence[Text]:
            text = self.palette.text
            lines = [text((f"{'name':<22}{'type':<10}{'filled':>7}  example", "muted"))]
            for column in found:
                share = f"{column.filled / column.of:.0%}" if column.of else "–"
                lines.append(
                    fit(
                        text(
                            (f"{one_line(column.name, 21):<22}", "text bold"),
                            (f"{one_line(column.type, 9):<10}{share:>7}  ", "text"),
                            (one_line(str(column.example), 200), "muted"),
                        ),
                        width,
                    )
                )
            return lines

        self.app.push_screen(Show("Columns that training has", rows))

    def action_code(self) -> None:
        """The code that turns a row into a prompt."""
        if self.data is not None:
            code = listing(self.palette, self.data.code.splitlines(), numbered=True)
            self.app.push_screen(Show("What train.py does to each row", code))

    @work(thread=True, exclusive=True, group="template")
    def action_template(self) -> None:
        """The prompt under the cursor with the chat template, exactly as the model sees it."""
        if self.data is None or not self.data.head:
            return
        view = self.data.head[self.query_one("#rows", Rows).cursor]
        seen = self.session.as_seen(self.draft, view.raw)
        if isinstance(seen, Problem):
            self.app.call_from_thread(self.app.notify, str(seen), severity="error", markup=False)
            return
        opens = "  The template opens <think>: completions begin inside it." if seen.opens_think else ""

        def rows(width: int) -> Sequence[Text]:
            return [
                *wrap(self.palette, f"{seen.tokens:,} tokens.{opens}", width, "muted"),
                self.palette.text(),
                *wrap(self.palette, inert(seen.text, 8000), width),
            ]

        self.app.call_from_thread(self.app.push_screen, Show(f"Row {view.number + 1:,} as the model sees it", rows))

    def action_faults(self) -> None:
        """Go to the faults."""
        self.query_one("#faults", Rows).focus()

    def remark(self) -> Trouble | None:
        if self.data is None or not self.data.faults:
            return None
        left_out = (self.data.source.rows or 0) - self.data.usable
        kinds = {
            gone: [fault.kind.replace("_", " ") for fault in self.data.faults if (fault.choice == "leave_out") is gone]
            for gone in (True, False)
        }
        words = f"Left out: {left_out:,} of {self.data.rows_words} rows ({', '.join(kinds[True])})." if left_out else ""
        also = f"Worth a look: {', '.join(kinds[False])}." if kinds[False] else ""
        return Trouble(one_line(f"{words} {also}", 200), "d", "show them")

    def missing(self) -> Trouble | None:
        if not self.draft.dataset.source:
            return Trouble("No data is chosen.", "space", "choose a file")
        if self.data is None:
            return Trouble("The data have not been read.", "r", "look again")
        if not self.draft.dataset.prompt:
            return Trouble("No column is the prompt.", "space", "choose one")
        stop = next((fault for fault in self.data.faults if fault.choice == "stop"), None)
        if stop is not None:
            words = f"{stop.kind.replace('_', ' ').capitalize()}: {stop.count:,} rows, and no choice yet."
            return Trouble(words, "d", "to the fault; space chooses there")
        return Trouble("No row can be used.", "space", "change a column") if not self.data.usable else None


def spelled_examples(examples: Sequence[Example]) -> str:
    """Worked examples as they are edited: see `read_examples`."""
    return "\n===\n".join(f"{each.question}\n---\n{each.answer}" for each in examples)


def read_examples(text: str) -> tuple[Example, ...] | None:
    """Examples as they were typed: question, `---`, answer, with `===` between two; None: a part is missing."""
    parts = [part for part in re.split(r"^===$", text, flags=re.MULTILINE) if part.strip()]
    halves = [re.split(r"^---$", part, maxsplit=1, flags=re.MULTILINE) for part in parts]
    if any(len(half) != 2 or not half[0].strip() or not half[1].strip() for half in halves):
        return None
    return tuple(Example(question=question.strip(), answer=answer.strip()) for question, answer in halves)


def percent_or_nothing(text: str) -> str:
    """A check: a percentage below 100, or nothing."""
    return text and (positive(text) or ("" if float(text.replace(",", ".")) < 100 else "Less than 100 must be left."))


def histogram(counts: Sequence[int], width: int) -> str:
    """Counts as a row of eighth blocks."""
    if not counts:
        return ""
    merged = [0] * min(width, len(counts))
    for at, count in enumerate(counts):
        merged[at * len(merged) // len(counts)] += count
    top = max(merged) or 1
    return "".join(BLOCKS[0 if not count else max(1, round(8 * count / top))] for count in merged)
