"""Grid: a table of finished texts, drawn as Markdown or LaTeX. It knows nothing of what it shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": r"\textbar{}",
    "±": r"$\pm$",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Text of one cell.

    Attributes:
        text: plain text, without marks of any format.
        bold: whether it is the best of its column.
        star: whether an asterisk follows it.
    """

    text: str
    bold: bool = False
    star: bool = False


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table with a caption above and notes below, all of it plain text.

    Attributes:
        caption: one line.
        header: names of the columns; the first column is aligned to the left, the others to the right.
        rows: cells, as many a row as there are columns.
        notes: one paragraph each.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def to_markdown(self) -> str:
        """GitHub's Markdown, ending with a line break."""
        rule = ["---", *["---:"] * (len(self.header) - 1)]
        lines = [
            _markdown_row([markdown_text(name) for name in self.header]),
            _markdown_row(rule),
            *(_markdown_row([_markdown_cell(cell) for cell in row]) for row in self.rows),
        ]
        paragraphs = [markdown_text(self.caption), "\n".join(lines), *map(markdown_text, self.notes)]
        return "\n\n".join(paragraphs) + "\n"

    def to_latex(self) -> str:
        """A `table` that needs the package booktabs."""
        lines = [
            r"\begin{table}[ht]",
            r"\centering",
            rf"\caption{{{latex_text(self.caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}",
            r"\toprule",
            _latex_row([latex_text(name) for name in self.header]),
            r"\midrule",
            *(_latex_row([_latex_cell(cell) for cell in row]) for row in self.rows),
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par{{\footnotesize {latex_text(note)}\par}}" for note in self.notes),
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"


def markdown_text(text: str) -> str:
    r"""Plain text with the characters escaped that Markdown would take as marks.

    Example:
        >>> print(markdown_text("a|b *c* wide_deep _d_"))
        a\|b \*c\* wide_deep \_d\_
    """
    escaped = re.sub(r"([\\|*<`\[\]])", r"\\\1", _one_line(text))
    # Inside a word an underscore is no mark; model names stay readable in the source.
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", escaped)


def latex_text(text: str) -> str:
    r"""Plain text with the characters escaped that LaTeX would take as commands.

    Example:
        >>> print(latex_text("wide_deep: 5 % ± 1, p < .05"))
        wide\_deep: 5 \% $\pm$ 1, p $<$ .05
    """
    return "".join(_LATEX.get(character, character) for character in _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _markdown_row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _markdown_cell(cell: Cell) -> str:
    text = markdown_text(cell.text)
    return (f"**{text}**" if cell.bold else text) + (r"\*" if cell.star else "")


def _latex_row(texts: Sequence[str]) -> str:
    return " & ".join(texts) + r" \\"


def _latex_cell(cell: Cell) -> str:
    text = latex_text(cell.text)
    return (rf"\textbf{{{text}}}" if cell.bold else text) + ("$^{*}$" if cell.star else "")
