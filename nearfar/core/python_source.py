"""Values, types and classes of nearfar's own files, read from their source without importing them.

`nearfar list` and `--help` read recipes and modalities this way, because importing them takes seconds.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

PACKAGE_FOLDER = Path(__file__).resolve().parents[1]
ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: operator.pow}
BUILTIN_TYPES = {"int": int, "float": float, "str": str, "bool": bool, "None": None}


@functools.cache
def parse_file(path: Path) -> ast.Module:
    """Parse a file, once per process."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def get_assigned_values(body: Iterable[ast.stmt]) -> dict[str, ast.expr]:
    """Return the expressions that statements assign to names."""
    found = {}
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = node.value
    return found


def evaluate_literal(node: ast.expr) -> Any:
    """Evaluate constants, containers of constants, and arithmetic with them.

    Raises:
        ValueError: if the expression contains anything else.
    """
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        return ARITHMETIC[type(node.op)](evaluate_literal(node.left), evaluate_literal(node.right))
    return ast.literal_eval(node)


def evaluate_or_quote(node: ast.expr) -> Any:
    """Evaluate a literal. Returns the source of any other expression."""
    try:
        return evaluate_literal(node)
    except ValueError:
        return ast.unparse(node)


def read_class_literals(path: Path, marker: str) -> dict[str, Any]:
    """Return the literal attributes of the first class of a file that assigns `marker`.

    Attributes that are not literals are left out.
    """
    body = find_class_with(path, marker).body
    found = {}
    for name, node in get_assigned_values(body).items():
        try:
            found[name] = evaluate_literal(node)
        except ValueError:
            continue
    return found


def find_class_with(path: Path, attribute: str) -> ast.ClassDef:
    """Return the first class of a file that assigns an attribute."""
    for node in parse_file(path).body:
        if isinstance(node, ast.ClassDef) and attribute in get_assigned_values(node.body):
            return node
    raise LookupError(f"{path} has no class that assigns {attribute!r}")


def find_definition(name: str, path: Path) -> tuple[ast.expr | ast.ClassDef, Path]:
    """Return the assigned expression or the class of a name, and its file.

    Imports from other files of nearfar are followed.

    Raises:
        LookupError: if the name is neither defined nor imported from nearfar.
    """
    body = parse_file(path).body
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node, path
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nearfar."):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return find_definition(alias.name, _get_module_path(node.module or ""))
    assigned = get_assigned_values(body)
    if name not in assigned:
        raise LookupError(f"{path} does not define {name!r} and does not import it from nearfar")
    return assigned[name], path


def _get_module_path(module: str) -> Path:
    base = PACKAGE_FOLDER.joinpath(*module.split(".")[1:])
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def resolve_type(node: ast.expr, path: Path) -> Any:
    """Return the type that an annotation means.

    It may be a built-in type, a union, a tuple, a Literal, or an alias of these.

    Raises:
        LookupError: if the annotation contains another type.
    """
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return resolve_type(node.left, path) | resolve_type(node.right, path)
    if isinstance(node, ast.Name):
        return BUILTIN_TYPES[node.id] if node.id in BUILTIN_TYPES else _resolve_alias(node.id, path)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        if node.value.id == "Literal":
            values = evaluate_literal(node.slice)
            return Literal[values]
        if node.value.id == "tuple" and isinstance(node.slice, ast.Tuple):
            return tuple[resolve_type(node.slice.elts[0], path), ...]
    raise LookupError(f"{path}: cannot read the type {ast.unparse(node)}")


def _resolve_alias(name: str, path: Path) -> Any:
    node, where = find_definition(name, path)
    if isinstance(node, ast.ClassDef):
        raise LookupError(f"{path}: cannot read the type {name}")
    return resolve_type(node, where)
