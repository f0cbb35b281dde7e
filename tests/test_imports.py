"""Test the direction of imports, cycles between modules, and the uniqueness of module names."""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import nearfar

ROOT = Path(nearfar.__file__).parent
PACKAGES = [
    "core", "scores", "losses", "data", "similarity", "encoders", "heads", "recipes", "train", "evaluate", "index", "modalities",
    "reports", "export", "api", "server", "cli",
]  # fmt: skip
"""A package imports only from packages that stand before it."""
OUTSIDE = {"nearfar", "nearfar.version", "nearfar.sklearn", "nearfar.__main__"}
"""Modules outside all packages. Any package may import `nearfar.version`; none may import the others."""


SOME_MODULE = "*"
"""Stands for the modules of a package that are found by walking its folder."""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in ROOT.rglob("*.py")}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def walk_runtime(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes that can run: imports in functions too, but not those for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if not is_type_checking(child):
            yield child
            yield from walk_runtime(child)


def imported_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything that a file imports, with `import`, `from` or `import_module`."""
    for node in walk_runtime(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from ((node.lineno, name) for name in names_of_call(node, path))


def names_of_call(call: ast.Call, path: Path) -> list[str]:
    """Return the package that `import_module` imports some module of, or the modules that a table in the same file holds."""
    name = call.args[0]
    if isinstance(name, ast.Constant):
        return [name.value]
    if isinstance(name, ast.JoinedStr):
        start = name.values[0]
        package = start.value.rpartition(".")[0] if isinstance(start, ast.Constant) else module_name(path.parent / "__init__.py")
        return [f"{package}.{SOME_MODULE}"]
    strings = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
    return [text for text in strings if isinstance(text, str) and text in MODULES]


def module_of(name: str) -> str:
    """Return the module that a full name lies in."""
    while name not in MODULES:
        name = name.rpartition(".")[0]
        if not name:
            return ""
    return name


def package_of(module: str) -> str:
    return module.split(".")[1] if module not in OUTSIDE and "." in module else ""


def imports_between_modules(registries: bool = True) -> dict[str, dict[str, int]]:
    """Return what each module imports, with the line. `registries`: also the packages whose folder a module walks."""
    found: dict[str, dict[str, int]] = {}
    for module, path in MODULES.items():
        names = [(line, name) for line, name in imported_names(path) if registries or not name.endswith(SOME_MODULE)]
        targets = {module_of(name): line for line, name in names}
        found[module] = {target: line for target, line in targets.items() if target and target != module}
    return found


def test_every_package_has_a_place_in_the_order():
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(PACKAGES)


def test_packages_import_only_from_packages_before_them():
    against = []
    for module, targets in imports_between_modules().items():
        own = package_of(module)
        for target, line in targets.items():
            if not own or target == "nearfar.version":
                continue
            other = package_of(target)
            if target in OUTSIDE or PACKAGES.index(other) > PACKAGES.index(own):
                against.append(f"{MODULES[module]}:{line}: {own} imports {target}")
    assert not against, "\n".join(against)


def test_train_evaluate_and_index_never_import_modalities_nor_reports_the_api():
    forbidden = [("train", "modalities"), ("evaluate", "modalities"), ("index", "modalities"), ("reports", "api"), ("export", "api")]
    pairs = {(package_of(module), package_of(target)) for module, targets in imports_between_modules().items() for target in targets}
    assert not pairs & set(forbidden)


def test_modules_import_each_other_without_cycles():
    graph = imports_between_modules(registries=False)
    for module in graph:
        assert module not in reachable(module, graph), f"{module} imports itself through {sorted(graph[module])}"


def reachable(start: str, graph: dict[str, dict[str, int]]) -> set[str]:
    """Return all modules that a module imports, directly or through others. A package's `__init__` is what it re-exports."""
    seen: set[str] = set()
    ways = list(graph[start])
    while ways:
        module = ways.pop()
        if module not in seen:
            seen.add(module)
            ways += graph[module]
    return seen


def test_the_checks_notice_lazy_and_dynamic_imports(tmp_path, monkeypatch):
    file = tmp_path / "file.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import nearfar.cli.main\n"
        "def f(name):\n    from nearfar.api import fit\n    return importlib.import_module('nearfar.server.app')\n"
    )
    assert [name for _, name in imported_names(file)] == ["typing.TYPE_CHECKING", "nearfar.api.fit", "nearfar.server.app"]


SAME_NAME = {
    "card": "a method's card, and the command that shows it",
    "dataset": "container of a modality's samples",
    "inputs": "data brought to a model, by modality",
    "load": "from a user's data to splits, by modality",
    "readers": "file formats, by modality",
    "table": "rows and columns: of scores, and as a modality",
}
"""Module names that several packages have, with the role they have in all of them."""
SAME_METHOD = ("losses", "recipes")
"""A loss and the recipe of the same paper may have the same file name."""
MODALITIES = {"audio", "frames", "graphs", "image", "image_text", "questions", "table", "text", "triples", "walks", "words"}
"""A modality's file may have the modality's name in these packages, as may its folder in `data`."""
OF_A_MODALITY = {"modalities", "similarity", "encoders", "data"}
OF_A_COMMAND = {"cli", "api", "reports", "server"}
"""A command's file in `cli/commands` may have the name of the function's file in `api`, of its page and of its routes."""


NAMED_FOR_USERS = ("nearfar.api.suites.",)
"""Folders whose files have the names that users type. A suite may have the name of the measure that it runs."""


def test_module_names_repeat_only_where_they_mean_the_same():
    places: dict[str, list[str]] = defaultdict(list)
    for module, path in MODULES.items():
        if path.stem != "__init__" and module not in OUTSIDE and not module.startswith(NAMED_FOR_USERS):
            places[path.stem].append(package_of(module))
    against = []
    for name, in_packages in places.items():
        packages = set(in_packages)
        if len(in_packages) == 1 or name in SAME_NAME:
            continue
        allowed = [set(SAME_METHOD), OF_A_COMMAND, OF_A_MODALITY if name in MODALITIES else set()]
        if not any(packages <= several for several in allowed):
            against.append(f"{name}: {sorted(packages)}")
    assert not against, "\n".join(against)


def test_every_module_can_be_imported_first():
    """A cycle that depends on the order of imports would show here."""
    for module in ("nearfar.api.fit", "nearfar.index", "nearfar.modalities", "nearfar.server.app"):
        assert importlib.import_module(module)


SAME_IN_SEVERAL = {
    "COLUMNS", "GROUP", "KEY", "QUERIES_PER_BLOCK", "explain_skip", "logger", "measure", "paper", "reported", "router", "run", "tiny",
    "write_encoder",
}  # fmt: skip
"""Public names that several modules define with one meaning: in recipes, commands, suites, routes and exports."""


def test_public_names_are_defined_once():
    places: dict[str, list[str]] = defaultdict(list)
    for module, path in MODULES.items():
        for name in public_definitions(ast.parse(path.read_text())):
            places[name].append(module)
    twice = {name: modules for name, modules in places.items() if len(modules) > 1 and name not in SAME_IN_SEVERAL}
    assert not twice


def public_definitions(tree: ast.Module) -> Iterator[str]:
    """Yield the public functions, classes and constants that a module defines."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        else:
            names = []
        yield from (name for name in set(names) if not name.startswith("_"))
