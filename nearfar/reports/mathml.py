r"""Converter from LaTeX equations of recipe cards to MathML, which browsers render without libraries.

It is a recursive descent parser of a small, closed vocabulary: fractions, roots, scripts, limits, Greek,
alphabets, accents, delimiters, named operators, text, cases. Anything else raises `UnknownLatex`, and
`render_equation` returns None: pages show the source instead. An equation is thus rendered correctly or not at all.
"""

from __future__ import annotations

import re
from html import escape

from markupsafe import Markup

GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε", "zeta": "ζ", "eta": "η", "theta": "θ",
    "vartheta": "ϑ", "iota": "ι", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ",
    "tau": "τ", "upsilon": "υ", "phi": "ϕ", "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ",
    "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ", "Upsilon": "Υ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω",
}  # fmt: skip
LETTERS = GREEK | {"ell": "ℓ", "infty": "∞", "partial": "∂", "nabla": "∇", "top": "⊤", "bot": "⊥", "emptyset": "∅", "hbar": "ℏ"}
OPERATORS = {
    "cdot": "⋅", "times": "×", "pm": "±", "in": "∈", "notin": "∉", "ni": "∋", "ne": "≠", "neq": "≠", "le": "≤", "leq": "≤", "ge": "≥",
    "geq": "≥", "ll": "≪", "gg": "≫", "approx": "≈", "sim": "∼", "equiv": "≡", "propto": "∝", "to": "→", "rightarrow": "→",
    "leftarrow": "←", "mapsto": "↦", "setminus": "∖", "cup": "∪", "cap": "∩", "subset": "⊂", "subseteq": "⊆", "odot": "⊙",
    "oplus": "⊕", "otimes": "⊗", "circ": "∘", "star": "⋆", "ast": "∗", "mid": "∣", "parallel": "∥", "forall": "∀", "exists": "∃",
    "ldots": "…", "dots": "…", "cdots": "⋯", "colon": ":", "prime": "′", "wedge": "∧", "vee": "∨", "mp": "∓", "simeq": "≃",
}  # fmt: skip
DELIMITERS = {
    "lVert": "‖", "rVert": "‖", "Vert": "‖", "|": "‖", "lvert": "|", "rvert": "|", "vert": "|", "langle": "⟨", "rangle": "⟩",
    "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "{": "{", "}": "}", "lbrace": "{", "rbrace": "}",
}  # fmt: skip
LARGE_OPERATORS = {"sum": "∑", "prod": "∏", "int": "∫", "bigcup": "⋃", "bigcap": "⋂"}
FUNCTIONS = {"arg", "exp", "log", "ln", "cos", "sin", "tanh", "det", "dim", "tr", "Pr"}
LIMIT_FUNCTIONS = {"max", "min", "sup", "inf", "lim", "argmax", "argmin"}
SPACE_WIDTHS = {
    ",": 0.167,
    ":": 0.222,
    ";": 0.278,
    "!": -0.167,
    " ": 0.25,
    "thinspace": 0.167,
    "thickspace": 0.278,
    "quad": 1.0,
    "qquad": 2.0,
}
TEXT_ESCAPES = {"\\ ": "\u00a0", "\\,": "\u00a0", "~": "\u00a0", "\\_": "_"}
ACCENTS = {"hat": "^", "widehat": "^", "tilde": "~", "widetilde": "~", "bar": "¯", "overline": "¯", "vec": "→", "dot": "˙"}
SIZE_COMMANDS = {"big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr", "Biggl", "Biggr", "bigm", "Bigm"}
ALPHABETS = {"mathbb": (0x1D538, 0x1D552, 0x1D7D8), "mathcal": (0x1D49C, 0x1D4B6, None), "mathbf": (0x1D400, 0x1D41A, 0x1D7CE)}
"""First capital letter, first small letter and zero of each Unicode alphabet."""
ALPHABET_EXCEPTIONS = {
    "mathbb": dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True)),
    "mathcal": dict(zip("BEFHILMRego", "ℬℰℱℋℐℒℳℛℯℊℴ", strict=True)),
}
"""Letters that Unicode keeps outside these alphabets."""

TOKEN_PATTERN = re.compile(r"\\operatorname\*|\\[A-Za-z]+|\\.|[0-9]+(?:\.[0-9]+)?|\s+|.", re.DOTALL)


class UnknownLatex(ValueError):
    """Unknown command or construction outside the vocabulary."""


def render_equation(latex: str) -> Markup | None:
    """Render a displayed equation as MathML. Returns None if it is not supported."""
    try:
        return Markup(f'<math display="block">{to_mathml(latex)}</math>')
    except UnknownLatex:
        return None


def to_mathml(latex: str) -> str:
    """Convert LaTeX to the content of a <math> element.

    Raises:
        UnknownLatex: if the source is outside the vocabulary.
    """
    return f"<mrow>{_Parser(TOKEN_PATTERN.findall(latex)).row(until=None)}</mrow>"


class _Parser:
    def __init__(self, tokens: list[str]):
        self.tokens = tokens
        self.at = 0

    def peek(self) -> str | None:
        """Return the next token that is not space.

        Space counts only within text.
        """
        while self.at < len(self.tokens) and self.tokens[self.at].isspace():
            self.at += 1
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self, expected: str | None = None) -> str:
        """Take the next token.

        Raise if it is not the expected one.
        """
        token = self.peek()
        if token is None or (expected is not None and token != expected):
            raise UnknownLatex(f"expected {expected or 'more'}, found {token or 'the end'}")
        self.at += 1
        return token

    def row(self, until: str | None) -> str:
        """Parse scripted atoms up to the token `until` and take that token."""
        atoms = []
        while self.peek() != until:
            atoms.append(self.scripted())
        if until is not None:
            self.take(until)
        return "".join(atoms)

    def scripted(self) -> str:
        """Parse an atom with its subscript and superscript.

        Scripts of a large operator stand below and above it.
        """
        start = self.peek() or ""
        base, below, above = self.atom(), None, None
        limits = start[1:] in LARGE_OPERATORS or start[1:] in LIMIT_FUNCTIONS or start == "\\operatorname*"
        while self.peek() in ("_", "^", "'"):
            mark = self.take()
            if mark == "'":
                above = (above or "") + "<mo>′</mo>"
            elif (below if mark == "_" else above) is not None:
                raise UnknownLatex(f"two scripts {mark} on one symbol")
            elif mark == "_":
                below = self.atom()
            else:
                above = self.atom()
        if above and "<mo>′</mo>" in above:
            above = f"<mrow>{above}</mrow>"
        name = {(True, True): ("munderover", "msubsup"), (True, False): ("munder", "msub"), (False, True): ("mover", "msup")}
        if below is None and above is None:
            return base
        tag = name[below is not None, above is not None][0 if limits else 1]
        return f"<{tag}>{base}{below or ''}{above or ''}</{tag}>"

    def atom(self) -> str:
        """Parse one argument: a symbol, a group in braces, or a command with its arguments."""
        token = self.take()
        if token == "{":
            return f"<mrow>{self.row('}')}</mrow>"
        if token.startswith("\\"):
            return self.command(token[1:])
        if token in "}_^&#$%~":
            raise UnknownLatex(f"{token} out of place")
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{token}</mi>"
        if token in "()[]|":
            return _delimiter(token)
        if token in "+-" and self.opens_a_term():
            return f'<mo form="prefix">{token.replace("-", "−")}</mo>'
        if token == "/":
            return '<mo lspace="0" rspace="0">/</mo>'
        return f"<mo>{escape({'-': '−', '*': '∗'}.get(token, token))}</mo>"

    def fraction_part(self) -> str:
        r"""Parse one argument of a fraction: one digit of a number, as \tfrac12 is a half."""
        number = self.peek() or ""
        if number.isdigit() and len(number) > 1:
            self.tokens[self.at : self.at + 1] = list(number)
        return self.atom()

    def opens_a_term(self) -> bool:
        """Return True if the last sign is a prefix: at the start or after another operator."""
        before = [t for t in self.tokens[: self.at - 1] if not t.isspace()]
        return not before or before[-1] in "=({[,<>+-^_" or before[-1][1:] in OPERATORS

    def command(self, name: str) -> str:
        """Parse a command."""
        if name in LETTERS:
            upright = ' mathvariant="normal"' if name in GREEK and name[0].isupper() else ""
            return f"<mi{upright}>{LETTERS[name]}</mi>"
        if name in OPERATORS:
            return f"<mo>{OPERATORS[name]}</mo>"
        if name in DELIMITERS:
            return _delimiter(DELIMITERS[name])
        if name in LARGE_OPERATORS:
            return f'<mo movablelimits="false">{LARGE_OPERATORS[name]}</mo>'
        if name in FUNCTIONS | LIMIT_FUNCTIONS:
            return self.function(name)
        if name in SPACE_WIDTHS:
            return f'<mspace width="{SPACE_WIDTHS[name]}em"></mspace>'
        if name in ACCENTS:
            stretchy = "true" if name.startswith(("wide", "over")) else "false"
            return f'<mover accent="true">{self.atom()}<mo stretchy="{stretchy}">{ACCENTS[name]}</mo></mover>'
        return self.structure(name)

    def structure(self, name: str) -> str:
        """Parse commands with special arguments."""
        if name in ("frac", "tfrac", "dfrac"):
            return f"<mfrac>{self.fraction_part()}{self.fraction_part()}</mfrac>"
        if name == "sqrt":
            return f"<msqrt>{self.atom()}</msqrt>"
        if name == "underset":
            below = self.atom()
            return f"<munder>{self.atom()}{below}</munder>"
        if name == "left":
            return self.fenced()
        if name == "begin":
            return self.cases()
        if name in SIZE_COMMANDS:
            return self.atom()
        if name in ("text", "mathrm", "textrm", "texttt", "mathsf", "mathtt"):
            return f"<mtext>{escape(self.words())}</mtext>"
        if name in ("operatorname", "operatorname*"):
            return self.function(self.words())
        if name in ALPHABETS or name == "boldsymbol":
            return self.styled("mathbf" if name == "boldsymbol" else name)
        raise UnknownLatex(f"unknown command \\{name}")

    def function(self, name: str) -> str:
        """Return an upright function name.

        No space separates it from a following bracket. A thin space separates it from anything else.
        """
        space = "0" if self.peek() in ("(", "[", "\\left", "_", "^") else "0.167em"
        return f'<mo lspace="0.06em" rspace="{space}" movablelimits="false">{escape(name)}</mo>'

    def fenced(self) -> str:
        """Parse an expression between growing delimiters."""
        opening = self.fence()
        inside = self.row("\\right")
        return f"<mrow>{opening}{inside}{self.fence()}</mrow>"

    def fence(self) -> str:
        """Parse a delimiter that grows with its content.

        A full stop stands for no delimiter.
        """
        token = self.take()
        mark = DELIMITERS.get(token[1:]) if token.startswith("\\") else token
        if mark == ".":
            return ""
        if mark is None or mark not in "()[]|{}‖⟨⟩⌊⌋⌈⌉/":
            raise UnknownLatex(f"{token} is not a delimiter")
        return f'<mo fence="true" stretchy="true">{mark}</mo>'

    def cases(self) -> str:
        """Parse lines of cells behind a brace.

        `cases` is the only supported environment.
        """
        lines = [[""]]
        opened = self.words()
        while self.peek() != "\\end":
            if self.peek() == "&":
                self.take()
                lines[-1].append("")
            elif self.peek() == "\\\\":
                self.take()
                lines.append([""])
            else:
                lines[-1][-1] += self.scripted()
        self.take()
        if opened != "cases" or self.words() != opened:
            raise UnknownLatex(f"an environment {opened}")
        rows = "".join(f"<mtr>{''.join(f'<mtd>{cell}</mtd>' for cell in line)}</mtr>" for line in lines)
        return f'<mrow><mo fence="true" stretchy="true">{{</mo><mtable style="text-align: left">{rows}</mtable></mrow>'

    def words(self) -> str:
        """Parse plain words in braces."""
        self.take("{")
        words = self.tokens[self.at :]
        if "}" not in words:
            raise UnknownLatex("text without an end")
        words = words[: words.index("}")]
        self.at += len(words) + 1
        if any(t.startswith("\\") or t in "{_^$" for t in words if t not in TEXT_ESCAPES):
            raise UnknownLatex("a formula within text")
        return "".join("\u00a0" if t.isspace() else TEXT_ESCAPES.get(t, t) for t in words)

    def styled(self, alphabet: str) -> str:
        """Parse letters and digits of another alphabet: \\mathbb{E}."""
        group = self.atom()
        letters = re.fullmatch(r"(?:<mrow>)?((?:<m[in]>[A-Za-z0-9]+</m[in]>)+)(?:</mrow>)?", group)
        if letters is None:
            raise UnknownLatex(f"\\{alphabet} of something else than letters")
        return re.sub(r">([A-Za-z0-9]+)<", lambda m: ">" + "".join(get_letter_of_alphabet(c, alphabet) for c in m[1]) + "<", group)


def _delimiter(mark: str) -> str:
    # Opening and closing bars are equal. Without explicit spacing a browser treats an inner bar as infix.
    spacing = ' lspace="0.06em" rspace="0.06em"' if mark in "|‖" else ""
    return f'<mo stretchy="false"{spacing}>{mark}</mo>'


def get_letter_of_alphabet(letter: str, alphabet: str) -> str:
    """Return a letter or digit of a Unicode alphabet, such as "mathbb"."""
    capital, small, zero = ALPHABETS[alphabet]
    if letter in ALPHABET_EXCEPTIONS.get(alphabet, {}):
        return ALPHABET_EXCEPTIONS[alphabet][letter]
    if letter.isdigit():
        return letter if zero is None else chr(zero + int(letter))
    return chr(capital + ord(letter) - ord("A")) if letter.isupper() else chr(small + ord(letter) - ord("a"))
