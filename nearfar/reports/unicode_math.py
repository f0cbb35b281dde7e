r"""Converter from LaTeX equations of recipe cards to Unicode text for a terminal.

    latex_to_line(r"\frac{1}{2n} \sum_i z_i^\top \tilde z_i")      1/(2n) ∑ᵢ zᵢᵀ z̃ᵢ
    latex_to_text(latex, width=80)                                  fractions in three lines, where they fit

Subscripts and superscripts are Unicode where all their characters exist, as in zᵢ, and _(…) or ^(…) elsewhere.
An unknown command becomes its name, so that the result contains neither backslashes nor braces.
"""

from __future__ import annotations

import re
import textwrap

from nearfar.reports.math_layout import TIGHT, Fraction, Row, add_brackets, get_width, join_row, lay_out_row
from nearfar.reports.mathml import (
    DELIMITERS,
    FUNCTIONS,
    LARGE_OPERATORS,
    LETTERS,
    LIMIT_FUNCTIONS,
    OPERATORS,
    SIZE_COMMANDS,
    get_letter_of_alphabet,
)

TOKENS = re.compile(r"\\operatorname\*|\\[A-Za-z]+|\\.|\s+|.", re.DOTALL)
SUBSCRIPTS = dict(zip("0123456789+−=()aehijklmnoprstuvxβγρφχ,", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓᵦᵧᵨᵩᵪ,", strict=True))
SUPERSCRIPTS = dict(
    zip(
        "0123456789+−=()abcdefghijklmnoprstuvwxyzABDEGHIJKLMNOPRTUVW⊤′*",
        "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᴬᴮᴰᴱᴳᴴᴵᴶᴷᴸᴹᴺᴼᴾᴿᵀᵁⱽᵂᵀ′*",
        strict=True,
    )
)
COMBINING_ACCENTS = {
    "hat": "\u0302", "widehat": "\u0302", "tilde": "\u0303", "widetilde": "\u0303", "bar": "\u0304", "overline": "\u0304",
    "vec": "\u20d7", "dot": "\u0307",
}  # fmt: skip
TIGHT_OPERATORS = {"cdot": "·", "circ": "∘", "star": "⋆", "ast": "*", "prime": "′", "ldots": "…", "dots": "…", "cdots": "⋯"}
"""Operators without spaces around them."""
SPACES = {",", ":", ";", " ", "thinspace", "thickspace"}
LINE_BREAKS = {"quad", "qquad"}
"""Wide spaces. They separate equations, which are written line by line."""
ALPHABET_COMMANDS = {"mathbb": "mathbb", "mathcal": "mathcal", "mathbf": "mathbf", "boldsymbol": "mathbf"}
TEXT_COMMANDS = {"text", "mathrm", "textrm", "texttt", "mathsf", "mathtt"}
ROUND_BRACKETS = {"{": "(", "}": ")", "lbrace": "(", "rbrace": ")"}
"""Braces of sets become round brackets: a brace in the result would look like LaTeX."""
BARS = {"lVert", "rVert", "lvert", "rvert"}
SHORT_FRACTION = 4
"""Largest number of characters above and below of a fraction that stays on the line."""


def latex_to_line(latex: str) -> str:
    """Convert LaTeX to one line of text."""
    return "; ".join(join_row(row) for row in _split_equations(_Parser(latex).row(until=None)))


def latex_to_text(latex: str, width: int = 80) -> str:
    """Convert a displayed equation to lines of at most this width.

    Fractions take three lines. An equation that is too wide then is written on one line and wrapped.
    """
    parts = []
    for row in _split_equations(_Parser(latex).row(until=None)):
        lines = [line.rstrip() for line in lay_out_row(row).lines]
        if max(map(get_width, lines)) > width:
            lines = textwrap.wrap(join_row(row), width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        parts.append("\n".join(lines))
    tall = any("\n" in part for part in parts)
    return ("\n\n" if tall else "\n").join(parts)


class _Parser:
    def __init__(self, latex: str):
        self.tokens = TOKENS.findall(latex)
        self.at = 0
        self.open_environments = 0
        self.expects_operand = True
        """True at the start and after an operator: a minus there is a sign."""

    def peek(self) -> str:
        """Return the next token that is not space, or an empty string at the end."""
        return next((token for token in self.tokens[self.at :] if not token.isspace()), "")

    def take(self) -> str:
        """Take the next token that is not space."""
        while self.at < len(self.tokens) and self.tokens[self.at].isspace():
            self.at += 1
        self.at += 1
        return self.tokens[self.at - 1] if self.at <= len(self.tokens) else ""

    def row(self, until: str | None) -> Row:
        """Parse pieces up to the token `until`, which is taken, or up to the end."""
        row: Row = []
        while (token := self.peek()) and token != until:
            if self.tokens[self.at].isspace():
                row.append(" ")
            row += self.scripted()
        self.take()
        return row

    def scripted(self) -> Row:
        """Parse an atom with its scripts."""
        name = self.peek().removeprefix("\\")
        base, scripts = self.atom(), {"_": "", "^": ""}
        while (mark := self.peek()) in ("_", "^", "'"):
            self.take()
            scripts["^" if mark == "'" else mark] += "′" if mark == "'" else self.argument_text()
        text = _write_script(scripts["_"], "_", SUBSCRIPTS) + _write_script(scripts["^"], "^", SUPERSCRIPTS)
        if name in LARGE_OPERATORS:
            return [*base, text, " "]
        if text and base and isinstance(base[-1], str):
            base = [*base[:-1], base[-1].rstrip(" ") + text + " " * base[-1].endswith(" ")]
            return [*base, " "] if name in LIMIT_FUNCTIONS and self.peek() != "(" else base
        return [*base, text]

    def argument(self) -> Row:
        """Parse one argument of a command: a group or a single token."""
        before, self.expects_operand = self.expects_operand, True
        row = self.atom()
        self.expects_operand = before
        return row

    def argument_text(self) -> str:
        """Parse an argument as text without spaces."""
        return join_row(self.argument()).replace(" ", "")

    def atom(self) -> Row:
        """Parse a symbol, a group in braces, or a command with its arguments."""
        token = self.take()
        if token == "{":
            return self.row("}")
        if token.startswith("\\") and len(token) > 1:
            return self.command(token[1:])
        return [self.symbol({"-": "−", "~": " ", "&": ": ", "}": "", "\\": ""}.get(token, token))]

    def symbol(self, mark: str) -> str:
        """Return a character with the spaces that it needs."""
        opens, self.expects_operand = self.expects_operand, not (mark.isalnum() or mark in ")]′⟩⌋⌉")
        if mark in "+−":
            return mark + TIGHT if opens else f" {mark} "
        if mark in "=<>":
            return f" {mark} "
        if mark in "|‖":
            self.expects_operand = opens
        return f"{mark} " if mark in ",;:" else mark

    def command(self, name: str) -> Row:
        """Parse a command."""
        if name in LETTERS:
            return [self.symbol(LETTERS[name])]
        if name in TIGHT_OPERATORS:
            return [self.symbol(TIGHT_OPERATORS[name])]
        if name in OPERATORS:
            self.expects_operand = True
            return [f" {OPERATORS[name].replace('∣', '|')} "]
        if name in BARS:
            self.expects_operand = name[0] == "l"
            return [DELIMITERS[name] + TIGHT if name[0] == "l" else TIGHT + DELIMITERS[name]]
        if name in ROUND_BRACKETS or name in DELIMITERS:
            return [self.symbol(ROUND_BRACKETS.get(name) or DELIMITERS[name])]
        if name in LARGE_OPERATORS:
            self.expects_operand = True
            return [LARGE_OPERATORS[name]]
        if name in FUNCTIONS | LIMIT_FUNCTIONS:
            return [self.function(name)]
        if name in SPACES:
            return [" "]
        if name in LINE_BREAKS or name == "\\":
            self.expects_operand = True
            return ["; " if self.open_environments else "\n"]
        return self.structure(name)

    def structure(self, name: str) -> Row:
        """Parse commands with arguments. An unknown command becomes its name."""
        if name in ("frac", "tfrac", "dfrac"):
            above, below = self.argument(), self.argument()
            self.expects_operand = False
            return _make_fraction(above, below)
        if name == "sqrt":
            root = add_brackets(join_row(self.argument()))
            self.expects_operand = False
            return [f"√{root}"]
        if name in COMBINING_ACCENTS:
            text = self.argument_text()
            self.expects_operand = False
            return [text[:1] + COMBINING_ACCENTS[name] + text[1:]]
        if name in ALPHABET_COMMANDS:
            letters = self.argument_text()
            self.expects_operand = False
            return ["".join(get_letter_of_alphabet(c, ALPHABET_COMMANDS[name]) if c.isalnum() else c for c in letters)]
        if name in TEXT_COMMANDS:
            return [self.words()]
        if name in ("operatorname", "operatorname*"):
            return [self.function(self.words())]
        if name == "underset":
            below, base = self.argument_text(), self.argument()
            return [*base, _write_script(below, "_", SUBSCRIPTS)]
        if name in ("left", "right") or name in SIZE_COMMANDS:
            return [] if self.peek() == "." and self.take() else self.atom()
        if name in ("begin", "end"):
            self.words()
            self.open_environments += 1 if name == "begin" else -1
            return [self.symbol("(" if name == "begin" else ")")]
        return [name]

    def function(self, name: str) -> str:
        """Return a function name, followed by a space unless a bracket or a script follows."""
        self.expects_operand = True
        following = self.peek()
        return name if following[:1] in ("(", "[", "_", "^", ")", ",", "") or following[1:] in SIZE_COMMANDS | {"left"} else f"{name} "

    def words(self) -> str:
        """Parse plain words in braces."""
        self.expects_operand = False
        if self.peek() != "{":
            return self.take().strip("\\}")
        self.take()
        words = []
        while self.at < len(self.tokens) and self.tokens[self.at] != "}":
            word = self.tokens[self.at]
            words.append(" " if word.isspace() or word[1:] in SPACES else word.strip("\\{}"))
            self.at += 1
        self.at += 1
        return "".join(words)


def _make_fraction(above: Row, below: Row) -> Row:
    """Return a fraction. A short one stays on the line, as in 1/(2n)."""
    texts = join_row(above), join_row(below)
    if texts == ("1", "2"):
        return ["½"]
    if max(map(get_width, texts)) <= SHORT_FRACTION:
        return [f"{add_brackets(texts[0])}/{add_brackets(texts[1])}"]
    return [Fraction(above, below)]


def _write_script(text: str, mark: str, characters: dict[str, str]) -> str:
    """Write a script with Unicode characters if all of them exist, else as _(text).

    Words stay words, as in P_start.
    """
    if all(c in characters for c in text) and not _is_word(text, 4):
        return "".join(characters[c] for c in text)
    closed = text.startswith("[") and text.endswith("]")
    return mark + (text if get_width(text) == 1 or _is_word(text, 3) or closed else f"({text})")


def _is_word(text: str, length: int) -> bool:
    return len(text) >= length and text.isascii() and text.isalpha()


def _split_equations(row: Row) -> list[Row]:
    """Split a row at wide spaces. Commas at the ends are dropped."""
    parts: list[Row] = [[]]
    for piece in row:
        if piece == "\n":
            parts.append([])
        else:
            parts[-1].append(piece)
    for part in parts[:-1]:
        while part and isinstance(part[-1], str) and part[-1].strip() in ("", ","):
            part.pop()
    return [part for part in parts if join_row(part)]
