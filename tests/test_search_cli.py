"""From a run to answers on the command line: build, search, add, delete, refuse."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from image_files import noise, save
from PIL import Image

import nearfar
from nearfar.api.fit import fit
from nearfar.api.load import load
from nearfar.cli.main import main


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A run on images, one on texts, and an index of each."""
    home = tmp_path_factory.mktemp("home")
    for name in ("cat/a.png", "cat/b.jpg", "dog/c.png", "dog/d.png"):
        save(noise(len(name) + ord(name[4]), 40, 30), home / "photos" / name)
    (home / "texts.txt").write_text("The cat sits.\nA dog runs.\nIt is <b>raining</b> & cold.\n17\n")
    fit("simclr", preset="tiny", steps=2, batch_size=16, out=home / "run")
    fit("simcse-unsup", [f"The number {i} is not {i + 1}." for i in range(20)], preset="tiny", steps=1, batch_size=8, out=home / "text-run")
    for run, data in (("run", "photos"), ("text-run", "texts.txt")):
        nearfar.index_data(home / run, str(home / data), home / f"{run}-index")
    return home


@pytest.fixture
def ask(home, capsys, monkeypatch):
    """ask("search INDEX …") -> what is printed, in a folder in which everything lies; `fails` is the exit code expected."""
    monkeypatch.chdir(home)

    def ask(line: str | list[str], stdin: bytes | None = None, fails: int = 0) -> str:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main(line.split() if isinstance(line, str) else line)
        out, err = capsys.readouterr()
        assert code == fails, err
        if fails:
            assert (out, err.count("\n")) == ("", 1)
            assert "Traceback" not in err
        return err if fails else out

    return ask


def hits(text: str) -> list[dict]:
    return json.loads(text)["hits"]


def test_an_image_finds_itself_and_is_named(ask, home):
    found = hits(ask("search run-index photos/dog/c.png --k 2 --json"))
    assert found[0] == {"score": pytest.approx(1), "name": "dog/c.png", "row": 2, "label": "dog", "path": str(home / "photos/dog/c.png")}
    assert len(found) == 2
    lines = ask("search run-index row:2 --k 2").splitlines()
    assert lines[0].split() == ["score", "row", "label", "item"]
    assert lines[1].split() == ["1.0000", "2", "dog", "dog/c.png"]
    assert ask("search run-index 2 --json") == ask("search run-index row:2 --json")


def test_a_text_is_a_query_and_the_answer(ask):
    found = hits(ask(["search", "text-run-index", "A dog runs.", "--json", "--k", "3"]))
    assert found[0]["text"] == "A dog runs."
    assert found[0]["name"] == "texts.txt, line 2"
    assert found[0]["score"] == pytest.approx(1, abs=1e-5)
    assert hits(ask("search text-run-index text:17 --json"))[0]["text"] == "17", "and no row"
    assert "A dog runs." in ask(["search", "text-run-index", "A dog runs."])


def test_vectors_come_on_stdin_and_python_gives_the_same(ask, home):
    vectors = load(home / "run").encode([home / "photos/cat/a.png", home / "photos/dog/d.png"]).numpy()
    file = io.BytesIO()
    np.save(file, vectors)
    answers = [hits(line) for line in ask("search run-index - --json --k 3", file.getvalue()).splitlines()]
    assert [found[0]["name"] for found in answers] == ["cat/a.png", "dog/d.png"]
    lines = "\n".join(json.dumps(v) for v in vectors.tolist()).encode()
    assert [hits(line) for line in ask("search run-index - --json --k 3", lines).splitlines()] == answers
    assert nearfar.search(home / "run-index", vectors, 3) == answers
    assert nearfar.search(nearfar.open_index(home / "run-index"), home / "photos/cat/a.png", 3) == [
        {**hit, "score": pytest.approx(hit["score"], abs=1e-6)} for hit in answers[0]
    ]
    assert "vector 0:" in ask("search run-index -", lines)
    assert "values each" in ask("search run-index -", b"[1, 2, 3]", fails=2)


def test_add_and_delete(ask, home):
    shutil.copytree(home / "run-index", home / "changing", dirs_exist_ok=True)
    assert "1 added as rows 4 to 4, 5 in all" in ask("index --add photos/cat/a.png changing")
    assert {h["row"] for h in hits(ask("search changing photos/cat/a.png --json --k 2"))} == {0, 4}
    assert "2 deleted, 3 left" in ask("index changing --delete cat/a.png row:4")
    assert "was deleted" in ask("search changing row:4", fails=2)
    assert "no sample named 'zebra'" in ask("index changing --delete zebra", fails=2)
    assert {h["row"] for h in hits(ask("search changing photos/cat/a.png --json"))} == {1, 2, 3}
    assert "rows 5 to 5" in ask("index --add photos/cat/a.png changing")


def test_another_model_is_refused_and_a_moved_run_found(ask, home):
    fit("simclr", preset="tiny", steps=2, batch_size=16, seed=5, out=home / "stranger")
    assert "a different model" in ask("search run-index photos/cat/a.png --run stranger", fails=1)
    assert "a different model" in ask("index run-index --add photos --run stranger", fails=1)
    shutil.copytree(home / "run", home / "elsewhere")
    assert hits(ask("search run-index photos/cat/a.png --run elsewhere --json"))[0]["name"] == "cat/a.png"
    nearfar.index_data("elsewhere", "photos", home / "other-index")
    shutil.rmtree(home / "elsewhere")
    assert "does not exist: give its new location (--run RUN)" in ask("search other-index photos/cat/a.png", fails=1)
    assert hits(ask("search other-index row:1 --json"))[0]["row"] == 1, "rows need no model"


@pytest.mark.parametrize(
    ("line", "words", "code"),
    [
        ("search no-such row:1", "is not an index", 2),
        ("search run row:1", "is not an index", 2),
        ("search run-index row:99", "rows are 0 to 3", 2),
        ("search run-index none.png", "there is no file 'none.png'", 2),
        ("search run-index row:1 --k 0", "at least 1", 2),
        ("search run-index row:1 --html no/such.html", "there is no folder", 2),
        ("index run --data photos", "--out", 2),
        ("index run --out x", "--data is missing", 2),
        ("index run --data photos --out x.db", "use --store", 2),
        ("index run --data photos --store x", "file.db", 2),
        ("index run --data photos --out run-index", "already holds an index", 2),
        ("index run --data photos --out photos --overwrite", "other files in it", 2),
        ("index run --data photos --out x --index-type tree", "'tree' is not one of", 2),
        ("index run-index --add photos --delete a", "not both", 2),
        ("index run-index --add photos --out x", "leave out --out", 2),
        ("index no-such --data photos --out x", "is not a run", 2),
    ],
)
def test_mistakes(ask, home, line, words, code):
    assert words in ask(line, fails=code)
    assert not (home / "x").exists()


class Page(HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def sources(self, tag: str) -> list[str]:
        return [attrs["src"] or "" for name, attrs in self.tags if name == tag]


def decoded(uri: str) -> bytes:
    return base64.b64decode(uri.split(",", 1)[1])


def test_a_page_of_images_is_whole_in_itself(ask, home):
    ask("search run-index photos/cat/b.jpg --html page.html")
    html = (home / "page.html").read_text()
    page = Page(html)
    assert len(page.sources("img")) == 5, "the query and four images"
    assert {Image.open(io.BytesIO(decoded(src))).size for src in page.sources("img")} == {(40, 30)}
    assert not re.search(r"""(src|href)=["'](?!data:)|https?://|@import|<script""", html)
    for word in ("cat/a.png", "dog", "row 3", "1.0000"):
        assert word in page.text


def test_a_page_of_texts_escapes_them_and_one_of_arrays_shows_pictures(ask, home):
    ask(["search", "text-run-index", "<script>alert(1)</script>", "--html", "texts.html"])
    page = Page((home / "texts.html").read_text())
    assert "It is <b>raining</b> & cold." in page.text
    assert not {"script", "b.raining"} & {tag for tag, _ in page.tags}
    nearfar.index_data(home / "run", np.full((2, 8, 8), 200, np.uint8), home / "arrays")
    ask("search arrays row:1 --html arrays.html")
    page = Page((home / "arrays.html").read_text())
    assert np.asarray(Image.open(io.BytesIO(decoded(page.sources("img")[0])))).tolist() == [[200] * 8] * 8


def test_a_sound_finds_itself(ask, home):
    soundfile = pytest.importorskip("soundfile")
    (home / "pitches").mkdir()
    for pitch in (220, 330, 440, 550):
        soundfile.write(home / "pitches" / f"{pitch}.wav", 0.5 * np.sin(2 * np.pi * pitch * np.arange(8000) / 8000), 8000)
    fit("nandan-vepa", preset="tiny", steps=1, batch_size=8, out=home / "sound-run")
    ask("index sound-run --data pitches --out sound-index -q")
    (found,) = hits(ask("search sound-index pitches/440.wav --k 1 --json"))
    assert found["name"] == "440.wav"
    assert found["score"] == pytest.approx(1, abs=1e-5)


def test_a_page_of_sounds_has_players(ask, home):
    sound = b"RIFF\x24\x00\x00\x00WAVEfmt "
    (home / "one.wav").write_bytes(sound)
    items = nearfar.index.RowTable.from_columns(["one", "two"], paths=[home / "one.wav", home / "gone.wav"])
    nearfar.index.build_index(np.eye(2, dtype=np.float32), items, home / "sounds")
    ask("search sounds row:1 --html sounds.html")
    page = Page((home / "sounds.html").read_text())
    assert [decoded(src) for src in page.sources("audio")] == [sound]
    assert page.text.count("can no longer be read") == 2, "as the query and as a hit"
    policy = next(attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv"))
    assert policy is not None
    assert "media-src data:" in policy
    assert policy.startswith("default-src 'none'")


def test_a_milvus_file_from_the_command_line(ask, home):
    assert "4 vectors of" in ask("index run --data photos --store photos.db")
    assert hits(ask("search photos.db photos/dog/d.png --k 1 --json"))[0]["name"] == "dog/d.png"
    assert "1 deleted, 3 left" in ask("index photos.db --delete dog/d.png")
    assert hits(ask("search photos.db photos/dog/d.png --k 1 --json"))[0]["name"] != "dog/d.png"
