"""Users' mistakes and broken inputs, end to end through the command line: one clear message, exit code 2, nothing lost."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from helpers import assert_same_tensors, stored
from PIL import Image

import nearfar
from nearfar.cli.main import main

FIT = ["--steps", "2", "--batch-size", "8"]


def said(capsys, *argv: str | Path) -> tuple[int, str]:
    """Exit code and what was said on stderr, which must be one line about the mistake and no traceback."""
    capsys.readouterr()
    code = main([str(a) for a in argv])
    err = capsys.readouterr().err
    assert "Traceback" not in err
    return code, err


def refused(capsys, *argv: str | Path) -> str:
    code, err = said(capsys, *argv)
    assert code == 2, err
    lines = [line for line in err.splitlines() if line]
    assert len(lines) == 1, err
    return lines[0]


@pytest.fixture
def thousand(tmp_path) -> Path:
    """A thousand small pictures in two classes."""
    folder = tmp_path / "pictures"
    pixels = (np.arange(1000 * 64, dtype=np.uint32) * 2654435761 >> 24).astype(np.uint8).reshape(1000, 8, 8)
    for i, image in enumerate(pixels):
        (folder / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / "ab"[i % 2] / f"{i:04}.png")
    return folder


def test_one_broken_image_among_a_thousand(thousand, tmp_path, capsys):
    broken = thousand / "a" / "0500.png"
    broken.write_bytes(broken.read_bytes()[:40])
    message = refused(capsys, "fit", "simclr", "--data", thousand, "--out", tmp_path / "run", *FIT)
    assert "0500.png" in message
    assert "--on-error skip" in message
    assert not (tmp_path / "run").exists()

    for name in ("one", "two"):
        code, err = said(capsys, "fit", "simclr", "--data", thousand, "--on-error", "skip", "--out", tmp_path / name, *FIT)
        assert code == 0, err
        assert "1 sample could not be read and will be left out; the first: a/0500.png" in err
        assert "0500.png" in err
    config = json.loads((tmp_path / "one" / "config.json").read_text())
    assert config["data"]["skipped"] == ["a/0500.png"]
    assert config["data"]["train"] + config["data"]["test"] == 999
    assert_same_tensors(stored(tmp_path / "one"), stored(tmp_path / "two"))
    code, err = said(capsys, "embed", tmp_path / "one", "--data", thousand, "--out", tmp_path / "v.npy")
    assert code == 0
    assert "1 sample could not be read" in err
    message = refused(capsys, "index", tmp_path / "one", "--data", thousand, "--out", tmp_path / "index", "--on-error", "stop")
    assert "--on-error skip" in message
    code, err = said(capsys, "index", tmp_path / "one", "--data", thousand, "--out", tmp_path / "index", "--on-error", "skip")
    assert code == 0
    assert "1 sample could not be read" in err


def test_fit_never_sees_test_rows_or_labels(thousand, tmp_path):
    seen = []

    class Spy(nearfar.train.training_loop.Hook):
        def start(self, session):
            seen.append((len(session.data), session.data.labels, session.data.classes, set(session.data.ids.tolist())))

    nearfar.fit("simclr", data=thousand, steps=2, batch_size=8, out=tmp_path / "run", hooks=[Spy()])
    ((count, labels, classes, ids),) = seen
    held_out = json.loads((tmp_path / "run" / "split.json").read_text())["test"]
    assert (count, labels, classes) == (800, None, ())
    assert len(held_out) == 200
    assert not ids & set(held_out)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda p: p.mkdir(), "empty"),
        (lambda p: (p.mkdir(), (p / "notes.txt").write_text("x")), "no images"),
        (lambda p: (p.mkdir(), Image.new("L", (8, 8)).save(p / "one.png")), "at least 2"),
        (lambda p: None, "no such file, folder or name"),
    ],
)
def test_data_that_are_none(make, expected, tmp_path, capsys):
    make(tmp_path / "data")
    message = refused(capsys, "fit", "simclr", "--data", tmp_path / "data", "--out", tmp_path / "run", *FIT)
    assert expected in message
    assert str(tmp_path / "data") in message
    assert not (tmp_path / "run").exists()


def test_requests_that_cannot_be_met(tmp_path, capsys):
    out = ["--out", tmp_path / "run"]
    assert "batch 5000 is larger than the data: 1438" in refused(capsys, "fit", "simclr", "--tiny", "--batch-size", 5000, *out)
    assert "Did you mean 'simclr'" in refused(capsys, "fit", "simclrr", "--tiny", *out)
    assert "Did you mean '--steps'" in refused(capsys, "fit", "simclr", "--tiny", "--stepz", 3, *out)
    assert "cpu" in refused(capsys, "fit", "simclr", "--tiny", "--device", "tpu", *out)
    assert "this machine has" in refused(capsys, "fit", "simclr", "--tiny", "--device", "cuda:99", *out)
    assert "resnet18" in refused(capsys, "fit", "simclr", "--tiny", "--encoder", "resnet8", *out)
    assert "neither a folder" in refused(capsys, "fit", "simclr", "--tiny", "--encoder", "hf:no/such", *out)
    assert "not a run" in refused(capsys, "fit", "simclr", "--tiny", "--init-from", tmp_path / "none", *out)
    assert "not a run" in refused(capsys, "fit", "--resume", tmp_path / "none")
    assert "not a run" in refused(capsys, "eval", tmp_path)
    assert "cannot read" in refused(capsys, "fit", "--config", tmp_path / "none.json", *out)
    assert not (tmp_path / "run").exists()


def test_an_existing_run_is_refused_and_both_ways_out_are_named(tmp_path, capsys):
    run = tmp_path / "run"
    assert said(capsys, "fit", "simclr", "--tiny", "--out", run, *FIT)[0] == 0
    before = stored(run)
    message = refused(capsys, "fit", "simclr", "--tiny", "--out", run, *FIT)
    assert "--resume" in message
    assert "--overwrite" in message
    assert_same_tensors(before, stored(run))
    assert said(capsys, "fit", "simclr", "--tiny", "--seed", 3, "--overwrite", "--out", run, *FIT)[0] == 0
    assert json.loads((run / "config.json").read_text())["train_config"]["seed"] == 3


def test_other_things_are_never_overwritten(tmp_path, capsys):
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.tex").write_text("years of work")
    assert "other files in it" in refused(capsys, "fit", "simclr", "--tiny", "--overwrite", "--out", folder, *FIT)
    assert "is a file" in refused(capsys, "fit", "simclr", "--tiny", "--overwrite", "--out", folder / "chapter.tex", *FIT)
    assert (folder / "chapter.tex").read_text() == "years of work"


def test_vectors_are_written_to_regular_files_only(tmp_path, capsys):
    run = tmp_path / "run"
    assert said(capsys, "fit", "simclr", "--tiny", "--out", run, *FIT)[0] == 0
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "link.npy").symlink_to(tmp_path / "elsewhere.npy")
    (tmp_path / "folder.npy").mkdir()
    for name, kind in {"pipe.npy": "a pipe", "link.npy": "a link", "folder.npy": "a folder"}.items():
        assert kind in refused(capsys, "embed", run, "--data", "digits", "--out", tmp_path / name)
    assert ".npy or .parquet" in refused(capsys, "embed", run, "--data", "digits", "--out", tmp_path / "v.csv")
    assert "no folder" in refused(capsys, "embed", run, "--data", "digits", "--out", tmp_path / "none" / "v.npy")
    assert stat.S_ISFIFO((tmp_path / "pipe.npy").lstat().st_mode)
    assert not (tmp_path / "elsewhere.npy").exists()


def test_a_folder_that_cannot_be_written(tmp_path, capsys):
    """Under root every folder can be written: a folder inside /proc cannot, for anybody."""
    assert "cannot create the run folder" in refused(capsys, "fit", "simclr", "--tiny", "--out", "/proc/nearfar/run", *FIT)


def test_vectors_in_both_formats_are_the_encoders(tmp_path, capsys):
    import pyarrow.parquet as pq

    run = tmp_path / "run"
    assert said(capsys, "fit", "simclr", "--tiny", "--out", run, *FIT)[0] == 0
    for suffix in ("npy", "parquet"):
        assert said(capsys, "embed", run, "--data", "digits", "--out", tmp_path / f"v.{suffix}")[0] == 0
    vectors = np.load(tmp_path / "v.npy", allow_pickle=False)
    table = pq.read_table(tmp_path / "v.parquet")
    assert vectors.shape == (1797, 128)
    assert np.array_equal(np.stack(table["vector"].to_numpy()), vectors)
    assert table["name"][17].as_py() == "row 17"
    assert table["label"][17].as_py() == "7"
    from sklearn.datasets import load_digits

    images = (load_digits().images * (255 / 16)).round().astype(np.uint8)
    assert np.allclose(nearfar.load(run).encode(images).numpy(), vectors, atol=1e-6)


def test_one_image_is_not_taken_for_its_rows(tmp_path):
    run = nearfar.fit("simclr", data=np.zeros((20, 8, 8, 3), np.uint8), steps=1, batch_size=8)
    with pytest.raises(nearfar.UsageError, match=r"of a single image: pass image\[None\]"):
        run.encode(np.zeros((8, 8, 3), np.uint8))
    assert run.encode(np.zeros((1, 8, 8, 3), np.uint8)).shape[0] == 1


def test_ports_do_not_wrap_around(capsys, tmp_path):
    nearfar.fit("simclr", preset="tiny", steps=1, batch_size=8, out=tmp_path / "run")
    for port in (70_000, -1):
        assert "from 0 (any free port) to 65535" in refused(capsys, "serve", tmp_path / "run", "--port", port, "-q")
