"""Scripts of the explorer: they are type-checked, agree with the server's JSON and compare no modality names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from nearfar.index import RowTable, build_index, open_index
from nearfar.modalities import list_modalities
from nearfar.server import explorer
from nearfar.server.collection import IndexCollection
from nearfar.server.explorer.page_data import Explorer
from nearfar.server.service import Service

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(explorer.__file__).parent
SCRIPTS = {path.name: path.read_text() for path in sorted(FOLDER.glob("*.js"))}
NAME = f"(?:{'|'.join(map(re.escape, list_modalities()))})"
QUOTED_NAME = rf"[\"'`]{NAME}[\"'`]"


def find_modality_names(script: str) -> list[str]:
    """Find modality names that a script compares or looks up.

    A quoted name is allowed as the tag of an element and as the value of a property. Every other quoted name counts as a
    comparison. So does a key of an object that is indexed.
    """
    code = remove_comments(script)
    quoted = re.findall(rf".{{0,30}}(?<!element\()(?<!: ){QUOTED_NAME}.{{0,10}}", code)
    keys = [found for found in find_lookup_tables(code) if re.search(rf"(?:^|[{{,])\s*[\"']?{NAME}[\"']?\s*[:,}}]", found)]
    return quoted + keys


def remove_comments(script: str) -> str:
    """Remove all comments. The scripts have no // inside of strings."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", script, flags=re.DOTALL)


def find_lookup_tables(code: str) -> Iterator[str]:
    """Yield the object literals of a script that are indexed, in place or by their name."""
    opened = []
    for i, character in enumerate(code):
        if character == "{":
            opened.append(i)
        elif character == "}":
            start = opened.pop()
            assigned = re.search(r"(?:const|let|var)\s+(\w+)\s*=\s*(?:new Map\(Object\.entries\()?$", code[:start])
            used = assigned and re.search(rf"\b{assigned[1]}(?:\.get\(|\?\.\[|\[)|\bin {assigned[1]}\b|\({assigned[1]}[,)]", code)
            if used or re.match(r"\)?(?:\?\.)?\[", code[i + 1 :]):
                yield code[start : i + 1]


def test_scripts_compare_no_modality_names():
    assert {"image", "image-text", "text", "audio", "words"} <= set(list_modalities())
    assert {name: found for name, script in SCRIPTS.items() if (found := find_modality_names(script))} == {}


@pytest.mark.parametrize(
    "script",
    [
        'if (about.modality === "audio") play();',
        "if ('image' !== modality) return;",
        'const shown = ["image", "image-text"].includes(modality);',
        'const shown = modality.includes("image");',
        'switch (modality) { case "words": quote(); }',
        "const quoted = `words` == modality;",
        'const notes = new Map([["text", "highlighted"]]); notes.get(modality);',
        'const NOTES = { image: "pixels", "image-text": "pixels" };\nshow(NOTES[about.modality]);',
        "const PLAYERS = {\n  other: null,\n  audio: play,\n};\nif (modality in PLAYERS) play();",
        'show({ text: "words" }[modality] ?? "");',
        'const NOTES = { deep: { text: "highlighted" }.size, audio: 1 }; Object.hasOwn(NOTES, modality);',
    ],
)
def test_comparisons_with_modality_names_are_found(script):
    assert find_modality_names(script)


@pytest.mark.parametrize(
    "script",
    [
        'element("audio", { src: path, controls: true });',
        'if (sample.text !== undefined) show(sample.text, { text: title, type: "text" });',
        "const trace = { text: names, words: 2 }; draw([trace]);",
        '// Sounds: about.modality === "audio"\n/* case "image": */ show(kind === "images");',
    ],
)
def test_other_uses_of_modality_names_are_allowed(script):
    assert not find_modality_names(script)


def test_every_script_is_type_checked_without_exceptions():
    silenced = re.compile(r"@ts-(?:ignore|nocheck|expect-error)|eslint-disable|@type \{\*\}|\{any\}")
    assert len(SCRIPTS) >= 10
    assert [name for name, script in SCRIPTS.items() if not script.startswith("// @ts-check\n")] == []
    assert [name for name, script in SCRIPTS.items() if silenced.search(script)] == []


def read_fields(interface: str) -> tuple[set[str], set[str]]:
    """Return the required and the optional fields of an interface in types.d.ts."""
    found = re.search(rf"interface {interface} [^{{]*{{(.*?)\n}}", (FOLDER / "types.d.ts").read_text(), re.DOTALL)
    assert found, interface
    fields = re.findall(r"^  (\w+)(\??):", found[1], re.MULTILINE)
    return {name for name, optional in fields if not optional}, {name for name, optional in fields if optional}


@pytest.fixture
def described(tmp_path) -> Iterator[tuple[dict, list[dict]]]:
    """Return the description of a small index, and the descriptions of its rows."""
    vectors = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    build_index(vectors, RowTable.from_columns(list("abcdef"), list("xxyyzz"), texts=list("uvwuvw")), tmp_path / "index")
    service = Service(IndexCollection(open_index(tmp_path / "index"), None))
    try:
        yield Explorer(service, None, "pca").describe(), service.collection.describe_rows([0])
    finally:
        service.worker.stop()


def test_types_have_the_fields_that_the_server_sends(described):
    about, samples = described
    assert read_fields("About") == (set(about), set())
    assert read_fields("SampleMedia") == (set(about["media"]), set())
    required, optional = read_fields("Sample")
    assert required | optional == set(samples[0])
    required, optional = read_fields("CategoryColumn")
    assert required | optional == set(about["columns"][0])


def test_lockfile_names_no_registry_and_versions_are_exact():
    packages = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    manifest = json.loads((ROOT / "package.json").read_text())
    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert manifest["private"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in manifest["devDependencies"].values())
    assert packages[""]["devDependencies"] == manifest["devDependencies"]
