"""Files of the BM25 index: the same search after a save and a load, damage that is noticed, former layouts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from nearfar.core import NearfarError, UsageError
from nearfar.data.samples.docstrings import make_docstrings
from nearfar.index.bm25 import BM25S_FILES, build_bm25, load_bm25
from nearfar.index.index_folder import lock_index_folder

PASSAGES = [
    "Rollo led the Vikings to Normandy.",
    "Normandy is a region in France, and Normandy is green.",
    "Bees make honey in summer.",
]
FILES = ["manifest.json", *(name.replace(".", "-1.") for name in BM25S_FILES.values())]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Save an index of the passages. Return its own folder."""
    build_bm25(PASSAGES).save(tmp_path)
    return tmp_path / "bm25"


def change_manifest(folder: Path, **changes: object) -> None:
    """Change the manifest, and its checksum too."""
    body = json.loads((folder / "manifest.json").read_text())["body"] | changes
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps({"sha256": digest, "body": body}))


def test_a_loaded_index_finds_the_same_passages(tmp_path):
    texts = list(make_docstrings().get_strings())
    built = build_bm25(texts)
    built.save(tmp_path)
    loaded = load_bm25(tmp_path)
    assert (len(loaded), loaded.passages_digest) == (len(texts), built.passages_digest)
    before, after = (index.search(texts[::97], 20) for index in (built, loaded))
    assert len(before.rows) > 20
    assert np.array_equal(before.rows, after.rows)
    assert np.array_equal(before.scores, after.scores)


def test_passages_with_unusual_characters_come_back(tmp_path):
    passages = [*PASSAGES, "naïve Ünïcödé wörds 数", "a \udce9 lone\udce9 surrogate", 'null\x00 "quotes"\u2028 and\nlines', "İstanbul ǅ ﬁ"]
    built = build_bm25(passages)
    built.save(tmp_path)
    for question in (*passages, "wörds", "数", "lone", "surrogate"):
        assert np.array_equal(built.score_passages(question), load_bm25(tmp_path).score_passages(question))


def test_the_folder_holds_arrays_and_json_without_pickle(folder):
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert [path.name for path in folder.parent.iterdir()] == ["bm25"]
    for path in folder.iterdir():
        if path.suffix == ".npy":
            assert np.load(path, allow_pickle=False).dtype.kind in "fi"
        else:
            assert isinstance(json.loads(path.read_text()), dict)


def test_the_arrays_are_mapped_not_read(folder):
    scores = load_bm25(folder.parent).engine.scores
    assert all(isinstance(scores[name], np.memmap) for name in ("data", "indices", "indptr"))


@pytest.mark.parametrize("name", FILES)
def test_one_changed_byte_in_any_file_is_noticed(folder, name):
    raw = (folder / name).read_bytes()
    for place in (0, len(raw) // 2, len(raw) - 2):
        (folder / name).write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        with pytest.raises(NearfarError, match=f"{name} is damaged"):
            load_bm25(folder.parent)
    (folder / name).write_bytes(raw)
    assert len(load_bm25(folder.parent)) == 3


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_or_missing_file_is_noticed(folder, name):
    raw = (folder / name).read_bytes()
    for length in (len(raw) - 1 - name.endswith(".json"), len(raw) // 2, 0):
        (folder / name).write_bytes(raw[:length])
        with pytest.raises(NearfarError, match=f"{name} is damaged"):
            load_bm25(folder.parent)
    (folder / name).unlink()
    with pytest.raises(NearfarError, match=name):
        load_bm25(folder.parent)


def test_a_folder_without_an_index_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"holds no BM25 index: there is no folder bm25 in it"):
        load_bm25(tmp_path)


def test_another_format_is_rejected(folder):
    change_manifest(folder, bm25_format=99)
    with pytest.raises(NearfarError, match="has format 99; this version of nearfar reads format 2: build it again"):
        load_bm25(folder.parent)


def test_a_manifest_that_leaves_a_file_out_is_rejected(folder):
    """The file would be read without a check."""
    sums = json.loads((folder / "manifest.json").read_text())["body"]["sha256"]
    del sums["scores.npy"]
    change_manifest(folder, sha256=sums)
    (folder / "scores-1.npy").write_bytes(b"")
    with pytest.raises(NearfarError, match="build it again"):
        load_bm25(folder.parent)


def test_the_former_files_are_rejected_and_replaced(tmp_path):
    for name in ("bm25.json", "bm25.safetensors"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(UsageError, match="has format 1; this version of nearfar reads format 2: build it again"):
        load_bm25(tmp_path)
    build_bm25(PASSAGES).save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["bm25"]
    assert len(load_bm25(tmp_path)) == 3


def test_saving_again_replaces_the_index_and_spares_open_ones(folder):
    opened = load_bm25(folder.parent)
    before = opened.score_passages("honey")
    build_bm25([*PASSAGES, "More honey."]).save(folder.parent)
    again = load_bm25(folder.parent)
    assert len(again) == 4
    assert np.array_equal(opened.score_passages("honey"), before)
    assert {path.name for path in folder.iterdir()} == {name.replace("-1.", "-2.") for name in FILES} | {"lock"}
    opened.save(folder.parent)
    assert np.array_equal(load_bm25(folder.parent).score_passages("honey"), before)
    assert np.count_nonzero(again.score_passages("honey")) == 2


def test_a_damaged_index_can_be_replaced(folder):
    (folder / "manifest.json").write_text("nonsense")
    build_bm25(PASSAGES[:2]).save(folder.parent)
    assert len(load_bm25(folder.parent)) == 2


def test_two_writers_do_not_mix_their_files(folder):
    with lock_index_folder(folder), pytest.raises(NearfarError, match="another process is changing"):
        build_bm25(PASSAGES[:2]).save(folder.parent)
    assert len(load_bm25(folder.parent)) == 3
    assert [path.name for path in folder.parent.iterdir()] == ["bm25"], "no temporary folder is left"
