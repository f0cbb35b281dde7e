"""Check the first lines of docstrings: a function's begins with a verb, all are short.

    python tools/check_docstrings.py [FOLDER …]

The first line of a docstring has at most 16 words and does not begin with a question word, "of", "that" or "those". The first line
of a function does not begin with an article or a pronoun either: "Return the rows", not "The rows". Properties may begin with a
noun. Prints one line for each place and exits with code 1 if there is one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_WORDS = 16
QUESTIONS = {
    "how", "of", "that", "those", "what", "whatever", "when", "where", "whether", "which", "who", "whoever", "whom", "whose", "why",
}  # fmt: skip
NOUN_STARTS = {
    "a", "all", "an", "any", "both", "each", "every", "he", "her", "his", "if", "it", "its", "no", "one", "some", "the", "their",
    "these", "this", "two",
}  # fmt: skip
"""First words of a noun phrase or a condition; a function's docstring begins with a verb instead."""


def faults_of(text: str, is_function: bool) -> Iterator[str]:
    """Yield what is wrong with the first line of a docstring."""
    words = text.splitlines()[0].split()
    first = re.sub(r"[^a-z]", "", words[0].lower()) if words else ""
    if first in QUESTIONS:
        yield f"begins with {words[0]!r}"
    if is_function and first in NOUN_STARTS:
        yield f"begins with {words[0]!r} instead of a verb"
    if len(words) > MAX_WORDS:
        yield f"the first line has {len(words)} words"


def is_property(node: ast.AST) -> bool:
    """Return True for functions that are read like attributes."""
    decorators = [ast.unparse(d) for d in getattr(node, "decorator_list", [])]
    return any("property" in d for d in decorators)


def check(path: Path) -> Iterator[str]:
    """Yield one line for each docstring of a file that breaks the rule."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module) and (text := ast.get_docstring(node)):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_property(node)
            for fault in faults_of(text, is_function):
                yield f"{path}:{getattr(node, 'lineno', 1)}: {getattr(node, 'name', 'module')}: {fault}"


def main() -> int:
    folders = [Path(folder) for folder in sys.argv[1:] or ["nearfar"]]
    found = [line for folder in folders for path in sorted(folder.rglob("*.py")) for line in check(path)]
    print("\n".join(found) or "docstrings are fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
