"""Show that a rename changed no assertion: compare the assertions of two versions of the tests.

    python tools/compare_tests.py OLD_TESTS NEW_TESTS

Both folders hold test files of the same names. Tests of a file are compared in the order in which they stand, assertion by assertion:
`assert` statements, `pytest.raises` and calls named `assert_…`. Structure, operators, numbers and truth values must be equal, and
names may differ only as tools/renames_0_2.json says. Texts are compared apart: texts that name a setting or an argument change with
it. Exits with code 1 if an assertion differs in anything else.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

NAMES: dict[str, list[str]] = {}
"""Old name to its new names; filled from the table of renames."""
SPELLING = (("colour", "color"), ("neighbour", "neighbor"), ("grey", "gray"), ("labelled", "labeled"), ("ise", "ize"), ("centre", "center"))
BUILDERS = {"pairs": "from_pairs", "views": "from_views", "labelled": "from_labels", "matched": "from_matched", "listed": "from_lists"}
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def load_names(path: Path) -> None:
    """Read the table of renames."""
    table = json.loads(path.read_text())
    for old, new in table["names"].items():
        NAMES.setdefault(old, []).extend(new)
    for fields in [table["settings"], *table["recipes"].values()]:
        for old, new in fields.items():
            NAMES.setdefault(old, []).append(new)


def tests_of(path: Path) -> list[ast.FunctionDef]:
    """Return the test functions of a file in order, those of classes too."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return sorted((n for n in nodes if isinstance(n, ast.FunctionDef) and n.name.startswith("test")), key=lambda n: n.lineno)


def assertions_of(test: ast.FunctionDef) -> list[ast.AST]:
    """Return all assertions of a test in order."""
    found = [node for node in ast.walk(test) if isinstance(node, ast.Assert) or is_assertion(node)]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))  # type: ignore[attr-defined]


def is_assertion(node: ast.AST) -> bool:
    """Return True for `pytest.raises(…)` and calls such as `torch.testing.assert_close(…)`."""
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    return name in ("raises", "approx", "warns") or name.startswith("assert")


def renamed(old: str, new: str) -> bool:
    """Return True if a name may have become another one."""
    return old == new or new in NAMES.get(old, ()) or same_spelling(old) == same_spelling(new)


def same_spelling(name: str) -> str:
    """Return a name in American spelling."""
    for british, american in SPELLING:
        name = name.replace(british, american)
    return name


def differences(old: ast.AST, new: ast.AST, texts: list[tuple[str, str]]) -> Iterator[str]:
    """Yield what differs between two assertions other than renames. Different texts are added to `texts`."""
    old, new = plain(old), plain(new)
    if type(old) is not type(new):
        yield f"{ast.unparse(old)} -> {ast.unparse(new)}"
        return
    if isinstance(old, ast.Constant) and isinstance(new, ast.Constant):
        if isinstance(old.value, str) and isinstance(new.value, str):
            texts.extend([(old.value, new.value)] if old.value != new.value else [])
        elif old.value != new.value or type(old.value) is not type(new.value):
            yield f"{old.value!r} -> {new.value!r}"
        return
    for (field, before), (_, after) in zip(ast.iter_fields(old), ast.iter_fields(new), strict=True):
        yield from field_differences(field, before, after, texts)


def field_differences(field: str, before: object, after: object, texts: list[tuple[str, str]]) -> Iterator[str]:
    """Yield what differs between two fields of a syntax tree."""
    if isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{field}: {len(before)} parts -> {len(after)}"
            return
        for a, b in zip(before, after, strict=True):
            yield from field_differences(field, a, b, texts)
    elif isinstance(before, ast.AST) and isinstance(after, ast.AST):
        yield from differences(before, after, texts)
    elif isinstance(before, str) and isinstance(after, str):
        if not renamed(before, after):
            yield f"{before} -> {after}"
    elif before != after and field != "kind":
        yield f"{before!r} -> {after!r}"


def plain(node: ast.AST) -> ast.AST:
    """Write `Scores.from_pairs` as the name `from_pairs`, and the old function by its new name."""
    if isinstance(node, ast.Attribute) and node.attr in BUILDERS.values() and ast.unparse(node.value).endswith("Scores"):
        return ast.Name(node.attr, ast.Load())
    if isinstance(node, ast.Name) and node.id in BUILDERS:
        return ast.Name(BUILDERS[node.id], ast.Load())
    return node


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--texts", action="store_true", help="also print the texts that differ")
    args = parser.parse_args()
    load_names(Path(__file__).with_name("renames_0_2.json"))
    count, found, texts = 0, [], []
    for path in sorted(args.old.rglob("test_*.py")):
        after = args.new / path.relative_to(args.old)
        if not after.exists():
            found.append(f"{path.name}: no such file any more")
            continue
        old, new = tests_of(path), tests_of(after)
        if len(old) != len(new):
            found.append(f"{path.name}: {len(old)} tests -> {len(new)}")
        for a, b in zip(old, new, strict=False):
            before, now = assertions_of(a), assertions_of(b)
            count += len(before)
            if len(before) != len(now):
                found.append(f"{path.name}::{a.name}: {len(before)} assertions -> {len(now)}")
            for x, y in zip(before, now, strict=False):
                found += [f"{path.name}::{a.name}: {line}" for line in differences(x, y, texts)]
    print("\n".join(dict.fromkeys(found)))
    if args.texts:
        print("\n".join(f"text: {a!r} -> {b!r}" for a, b in dict.fromkeys(texts)))
    print(f"{count} assertions, {len(dict.fromkeys(found))} differences beyond renames, {len(dict.fromkeys(texts))} texts with new names")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
