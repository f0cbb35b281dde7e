"""Built-in knowledge graph: relations between the classes of Python's standard library.

    (logging.StreamHandler, inherits, logging.Handler)
    (logging.Handler, defined in, logging)
    (emit(), of, logging.Handler)

The graph is the same on every machine with the same Python. Nothing is imported or run: the files are parsed.
"""

from __future__ import annotations

import ast
import importlib.util
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

TRIPLE_MODULES = (
    "argparse", "asyncio.events", "asyncio.futures", "asyncio.protocols", "asyncio.queues", "asyncio.streams", "asyncio.transports",
    "collections", "concurrent.futures._base", "configparser", "csv", "_pydecimal", "_pyio",
    "email.message", "fractions", "http.client", "http.cookiejar", "http.server", "importlib.abc", "ipaddress", "json.decoder",
    "json.encoder", "logging", "logging.handlers", "mailbox", "numbers", "pathlib", "queue", "random", "selectors", "shelve",
    "smtplib", "socketserver", "string", "tarfile", "tempfile", "threading", "typing", "unittest.case", "unittest.mock",
    "unittest.suite", "urllib.error", "urllib.request", "xml.sax.handler", "zipfile",
)  # fmt: skip


@lru_cache(maxsize=1)
def make_python_triples() -> list[tuple[str, str, str]]:
    """Return all triples, each once.

    Methods that only one class has are left out, because nothing could be learned about them.
    """
    found = list(dict.fromkeys(triple for module in TRIPLE_MODULES for triple in _of_module(module)))
    classes = Counter(head for head, relation, _ in found if relation == "of")
    return [triple for triple in found if triple[1] != "of" or classes[triple[0]] > 1]


def _of_module(module: str) -> Iterator[tuple[str, str, str]]:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    own = {node.name for node in classes}
    for node in classes:
        name = f"{module}.{node.name}"
        yield name, "defined in", module
        for base in node.bases:
            if isinstance(base, ast.Name | ast.Attribute):
                written = ast.unparse(base)
                yield name, "inherits", f"{module}.{written}" if written in own else written
        for part in node.body:
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{part.name}()", "of", name
