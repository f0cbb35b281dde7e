"""Runs as people use them: from other folders, on data that change, with settings from Python, beside damaged files."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.modules.module import register_module_forward_hook

import nearfar
from nearfar.api.embed import embed
from nearfar.api.evaluate import evaluate_model
from nearfar.api.report import write_model_report
from nearfar.cli.main import main
from nearfar.core import NearfarError, UsageError
from nearfar.core.modality import MODALITY_SETTINGS
from nearfar.data.images import image_folder as folder_module
from nearfar.modalities import find_modality, list_modalities
from nearfar.train.model_data import draw_test_views, load_model_splits
from nearfar.train.training_loop import Hook

SMALL = {"steps": 2, "batch_size": 8}


def pictures(folder: Path, count: int, size: int = 8, start: int = 0, classes: str = "ab") -> Path:
    for i in range(start, start + count):
        pixels = (
            (np.arange(size * size * 3, dtype=np.uint64) * (i + 7) * 2654435761 >> np.uint64(13)).astype(np.uint8).reshape(size, size, 3)
        )
        target = folder / classes[i % len(classes)] / f"{i:03}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(target)
    return folder


WRONG = {
    "optimizer='adam'": "--optimizer must be one of adamw, sgd, lars, adagrad, got 'adam'. Did you mean 'adamw'",
    "schedule='linear'": "--schedule must be one of cosine, constant",
    "precision='fp16'": "--precision must be one of fp32, bf16",
    "norm='bogus'": "--norm must be one of batch, layer, none",
    "batch_size='16'": "--batch-size must be of type int",
    "temperature=0": "--temperature must be greater than 0",
    "dim=-3": "--dim must be greater than 0",
    "momentum=3": "--momentum must be at least 0 and at most 1",
    "weight_decay=-1": "--weight-decay must be at least 0",
    "columns='text'": "--columns has no effect on the modality 'image' of SimCLR: leave it out",
    "seconds=3.0": "--seconds has no effect",
    "hooks=[nearfar.Hook]": "as in hooks=[MyHook()]; got the class Hook",
    "hooks=[print]": "got <built-in function print>",
    "hooks=nearfar.Hook()": "got <nearfar.train.training_loop.Hook object",
}


def test_wrong_settings_are_errors_in_python_too(tmp_path):
    """In a process of its own: here the tests' type checker would be the first to object."""
    calls = "".join(
        f"try: nearfar.fit('simclr', data='digits', out='run', **dict({{'steps': 2}}, {wrong}))\nexcept nearfar.UsageError as e: print(e)\n"
        for wrong in WRONG
    )
    done = subprocess.run([sys.executable, "-c", f"import nearfar\n{calls}"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for line, words in zip(done.stdout.splitlines(), WRONG.values(), strict=True):
        assert words in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", list_modalities())
def test_modalities_name_the_settings_that_they_read(name):
    """A setting that is read and not named would be refused."""
    modality = find_modality(name)
    source = inspect.getsource(sys.modules[type(modality.build_inputs()).__module__])
    assert set(modality.settings) == {setting for setting in MODALITY_SETTINGS if f"config.{setting}" in source}


def test_settings_of_presets_and_configs_may_be_about_other_data(tmp_path):
    """Nobody asked for them."""
    first = nearfar.fit("simclr", "digits", out=tmp_path / "run", **SMALL)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["train_config"] |= {"columns": "text", "max_length": 9}
    (tmp_path / "other.json").write_text(json.dumps(config))
    again = nearfar.fit(config_file=tmp_path / "other.json", seconds=None)
    assert again.config == dataclasses.replace(first.config, columns="text", max_length=9)


def test_a_run_can_be_used_from_any_folder(tmp_path, monkeypatch):
    pictures(tmp_path / "pictures", 30)
    monkeypatch.chdir(tmp_path)
    nearfar.fit("simclr", data="pictures", out="run", **SMALL)
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    assert evaluate_model(nearfar.load(tmp_path / "run")).results
    again = nearfar.fit(config_file=tmp_path / "run" / "config.json", out="again")
    assert again.step == 2


def test_data_that_grew_are_refused_where_test_rows_would_mix_with_training_rows(tmp_path):
    pictures(tmp_path / "pictures", 30)
    run = nearfar.fit("simclr", data=tmp_path / "pictures", out=tmp_path / "run", **SMALL)
    pictures(tmp_path / "pictures", 5, start=100)
    for use in (evaluate_model, write_model_report):
        with pytest.raises(UsageError, match="has changed since"):
            use(run)
    (tmp_path / "pictures" / "a" / "100.png").unlink()


def test_a_changed_pixel_is_noticed_by_resume(tmp_path):
    pictures(tmp_path / "pictures", 30)
    nearfar.fit("simclr", data=tmp_path / "pictures", out=tmp_path / "run", **SMALL, save_every=1)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["train_config"]["steps"] = 3
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    victim = tmp_path / "pictures" / "a" / "000.png"
    Image.fromarray(255 - np.asarray(Image.open(victim))).save(victim)
    with pytest.raises(NearfarError, match="have changed"):
        nearfar.resume(tmp_path / "run", accept_changes=True)


@pytest.mark.slow
def test_raw_pixels_stand_beside_large_images_too(tmp_path):
    pictures(tmp_path / "pictures", 40, size=72)
    run = nearfar.fit("simclr", data=tmp_path / "pictures", encoder="convnet", out=tmp_path / "run", **SMALL)
    names = [r["representation"] for r in evaluate_model(run).results]
    assert names == ["raw pixels", "raw pixels, scaled", "untrained encoder", "trained encoder"]
    assert evaluate_model(run).results[0]["width"] == 3 * 32 * 32
    assert write_model_report(run).stat().st_size > 10_000


def test_views_are_of_samples_from_all_over_data_that_are_sorted_by_class(tmp_path):
    """Black pictures first: whatever is done to one of them, it stays black."""
    run = nearfar.fit("simclr", data=pictures(tmp_path / "pictures", 20), **SMALL)
    (data,) = run.inputs.adapt(np.repeat([0, 255], 40)[:, None, None, None].astype(np.uint8) * np.ones((1, 8, 8, 3), np.uint8))
    first, second = draw_test_views(run, data, 24)
    bright = first.flatten(1).amax(1) > 0
    assert 4 <= bright.sum() <= 20
    assert torch.equal(bright, second.flatten(1).amax(1) > 0), "both views are of one sample"
    assert torch.equal(draw_test_views(run, data, 24)[0], first)


def test_views_of_other_data_need_no_labels_and_are_of_what_the_method_draws_from(tmp_path):
    taught = nearfar.fit("supcon", data=pictures(tmp_path / "pictures", 20), **SMALL)
    (unlabelled,) = taught.inputs.adapt(np.zeros((30, 8, 8, 3), np.uint8))
    assert len(draw_test_views(taught, unlabelled, 12)[0]) == 12
    frames = nearfar.fit("st-dim", preset="tiny", steps=1)
    test = load_model_splits(frames).test
    assert len(test.pair_starts) < len(test)
    assert len(draw_test_views(frames, test, len(test))[0]) == len(test.pair_starts), "the last frame of an episode has no next one"


def test_the_same_samples_are_divided_as_in_training_whatever_their_name_and_labels(tmp_path):
    """A split drawn anew is stratified by labels that the training did not have: it would test on what was trained on."""
    X, y = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8), np.arange(60) % 3
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "xy.npz", images=X, labels=y)
    blind = load_model_splits(nearfar.fit("simclr", tmp_path / "x.npy", out=tmp_path / "run", **SMALL)).test_ids
    for run, data in ((nearfar.load(tmp_path / "run"), tmp_path / "xy.npz"), (nearfar.fit("simclr", X, **SMALL), (X, y))):
        splits = load_model_splits(run, data)
        assert splits.test_ids == blind
        assert np.array_equal(splits.test.labels, y[blind])
        assert load_model_splits(run, (X[::-1].copy(), y)).test_ids != blind, "other data are divided anew"
    taught = nearfar.fit("supcon", (X, y), **SMALL)
    assert load_model_splits(taught, (X, y)).test_ids != blind
    assert load_model_splits(taught, X).test_ids == load_model_splits(taught, (X, y)).test_ids


def test_a_report_adds_up_the_time_of_a_resumed_run(tmp_path):
    run = nearfar.fit("simclr", data=pictures(tmp_path / "pictures", 30), out=tmp_path / "run", **SMALL)
    page = write_model_report(dataclasses.replace(run, metrics=[{"step": s, "time": t} for s, t in enumerate((10.0, 40.0, 5.0, 30.5))]))
    assert "70.5 s" in page.read_text()


def test_names_that_are_not_utf8_are_written_too(tmp_path):
    import pyarrow.parquet as pq

    folder = pictures(tmp_path / "pictures", 20)
    os.rename(folder / "a", os.fsencode(folder) + b"/a\xff")
    embed(nearfar.fit("simclr", data=folder, **SMALL), folder, tmp_path / "v.parquet", split="all")
    found = pq.read_table(tmp_path / "v.parquet")
    assert set(found["label"].to_pylist()) == {"a\\udcff", "b"}
    assert "a\\udcff/000.png" in found["name"].to_pylist()


def test_both_splits_of_a_folder_are_encoded(tmp_path):
    pictures(tmp_path / "data" / "train", 20)
    pictures(tmp_path / "data" / "test", 6)
    run = nearfar.fit("simclr", data=tmp_path / "data", **SMALL)
    assert len(run.encode(tmp_path / "data")) == 26


def test_grey_pictures_are_read_by_a_run_on_colour(tmp_path):
    run = nearfar.fit("simclr", data=pictures(tmp_path / "pictures", 20), **SMALL)
    grey = np.full((3, 8, 8), 77, dtype=np.uint8)
    assert torch.allclose(run.encode(grey), run.encode(np.repeat(grey[..., None], 3, axis=3)), atol=1e-6)


def test_damaged_checkpoints_do_not_push_out_good_ones(tmp_path, caplog):
    class Stop(Hook):
        def step(self, session, values, z):
            if session.step == 3:
                raise RuntimeError("on purpose")

    nearfar.fit("simclr", preset="tiny", out=tmp_path / "run", steps=9, batch_size=16, save_every=1)
    checkpoints = tmp_path / "run" / "checkpoints"
    for file in checkpoints.glob("*/net.safetensors"):
        file.write_bytes(b"")
    with caplog.at_level(logging.WARNING, "nearfar"), pytest.raises(RuntimeError, match="on purpose"):
        nearfar.resume(tmp_path / "run", hooks=[Stop()])
    assert "damaged" in caplog.text
    assert sorted(p.name for p in checkpoints.glob("step-*")) == ["step-000000001", "step-000000002"]
    assert nearfar.resume(tmp_path / "run").step == 9


def test_links_are_never_written_through(tmp_path):
    nearfar.fit("simclr", preset="tiny", out=tmp_path / "run", **SMALL)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["train_config"]["steps"] = 3
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    precious = tmp_path / "precious.txt"
    precious.write_text("dear")
    for name in ("lock", "log.txt"):
        (tmp_path / "run" / name).unlink()
        (tmp_path / "run" / name).symlink_to(precious)
        with pytest.raises(NearfarError, match=r"cannot (lock|write)"):
            nearfar.resume(tmp_path / "run", accept_changes=True)
        assert precious.read_text() == "dear"
        (tmp_path / "run" / name).unlink()


def test_a_run_on_an_array_asks_for_it_again(tmp_path):
    images = np.arange(30 * 64, dtype=np.uint8).reshape(30, 8, 8)
    run = nearfar.fit("simclr", data=images, out=tmp_path / "run", **SMALL)
    with pytest.raises(UsageError, match="trained on an array"):
        evaluate_model(run)
    assert evaluate_model(run, images).results


def test_chunks_with_batch_norm_are_warned_of_and_statistics_move_once(caplog):
    with caplog.at_level(logging.WARNING, "nearfar"):
        run = nearfar.fit("byol", preset="tiny", steps=1, batch_size=17, chunk_size=16)
    assert "convnet-gn" in caplog.text
    tracked = [v for k, v in run.net.state_dict().items() if k.startswith("encoder") and k.endswith("num_batches_tracked")]
    assert tracked
    assert all(int(v) == 2 for v in tracked), "once for each of the two views"


@contextlib.contextmanager
def determinism_of_forward_passes() -> Iterator[list[bool]]:
    """List for every forward pass of any module whether torch allows deterministic algorithms alone."""
    seen: list[bool] = []
    hook = register_module_forward_hook(lambda *_: seen.append(torch.are_deterministic_algorithms_enabled()))
    try:
        yield seen
    finally:
        hook.remove()


@pytest.mark.parametrize("flags", [["--deterministic"], []])
def test_the_deterministic_flag_holds_during_the_steps(flags, tmp_path):
    with determinism_of_forward_passes() as seen:
        assert main(["fit", "simclr", "--tiny", "--steps", "2", "--batch-size", "8", "--out", str(tmp_path / "run"), *flags]) == 0
    assert set(seen) == {bool(flags)}
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("before", [False, True])
def test_determinism_ends_with_the_run(before):
    """Also with a run that fails. A caller who has it switched on keeps it."""

    class Fail(Hook):
        def step(self, session, values, z):
            assert torch.are_deterministic_algorithms_enabled()
            raise RuntimeError("on purpose")

    torch.use_deterministic_algorithms(before)
    try:
        with pytest.raises(RuntimeError, match="on purpose"):
            nearfar.fit("simclr", preset="tiny", deterministic=True, hooks=[Fail()], **SMALL)
        assert torch.are_deterministic_algorithms_enabled() == before
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_broken_file_in_a_worker_is_one_message(tmp_path, monkeypatch):
    pictures(tmp_path / "pictures", 30)
    monkeypatch.setattr(folder_module, "MAX_BYTES_IN_MEMORY", 100)
    victim = tmp_path / "pictures" / "a" / "004.png"
    victim.write_bytes(victim.read_bytes()[:-30])
    with pytest.raises(UsageError, match=r"^cannot read the image .*004\.png"):
        nearfar.fit("simclr", data=tmp_path / "pictures", steps=20, batch_size=8, num_workers=1)


@pytest.mark.slow
def test_a_signal_to_the_whole_group_saves_with_workers(tmp_path):
    run = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "nearfar",
        "fit",
        "simclr",
        "--tiny",
        "--steps",
        "100000",
        "--num-workers",
        "2",
        "--log-every",
        "1",
        "--out",
        str(run),
    ]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    metrics = run / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert len(list(run.glob("checkpoints/step-*"))) == 1


def test_another_part_of_the_net_encodes():
    """NPID's `query` ends where its loss compares: unit vectors of the head's width, of the same images in the same order."""
    trained = nearfar.fit("instance-discrimination-npid", data="digits", steps=2, batch_size=32)
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    h, f = trained.encode(images), trained.encode(images, tower="query")
    assert f.shape == (20, 128)
    torch.testing.assert_close(f, torch.nn.functional.normalize(trained.net.query[1](h.to(trained.device)), dim=1).detach().cpu())
    with pytest.raises(UsageError, match=r"no 'querry'\. Did you mean 'query'"):
        trained.encode(images, tower="querry")


def test_labels_that_changed_are_noticed_by_who_learns_from_them(tmp_path):
    pixels, labels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 4
    settings = {"steps": 4, "batch_size": 8, "save_every": 2, "encoder": "convnet-gn"}
    for name in ("supcon", "simclr"):
        np.savez(tmp_path / "images.npz", images=pixels, labels=labels)
        with pytest.raises(KeyboardInterrupt):
            nearfar.fit(name, data=str(tmp_path / "images.npz"), out=tmp_path / name, hooks=[StopAt(2)], **settings)
        np.savez(tmp_path / "images.npz", images=pixels, labels=labels[::-1])
        if name == "simclr":
            assert nearfar.resume(tmp_path / name).step == 4
        else:
            with pytest.raises(NearfarError, match=r"the labels at .* have changed"):
                nearfar.resume(tmp_path / name)


class StopAt(Hook):
    def __init__(self, step: int):
        self.at = step

    def step(self, session, values, z):
        session.interrupted = session.step >= self.at


def test_a_chunk_of_one_row_before_batch_normalisation_is_refused(tmp_path):
    with pytest.raises(UsageError, match="--chunk-size 1 leaves a chunk of one row"):
        nearfar.fit("barlow-twins", preset="tiny", chunk_size=1, batch_size=8, steps=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists(), "nothing is begun that cannot be trained"
    with pytest.raises(UsageError, match="--chunk-size 2 leaves a chunk of one row"):
        nearfar.fit("byol", preset="tiny", chunk_size=2, batch_size=3, steps=1)


def stopped_run(folder: Path, stop_at: int | None = 2) -> Path:
    """A run of four steps with a checkpoint a step, stopped after some of them; None: a finished one."""

    class Stop(Hook):
        def step(self, session, values, z):
            session.interrupted = session.step == stop_at

    run = folder / "run"
    with contextlib.suppress(KeyboardInterrupt):
        nearfar.fit("simclr", preset="tiny", steps=4, batch_size=8, save_every=1, out=run, hooks=[Stop()])
    return run


def edit_config(run: Path, part: str, **values: object) -> None:
    config = json.loads((run / "config.json").read_text())
    config[part] |= values
    (run / "config.json").write_text(json.dumps(config))


CHANGES = {
    "train_config.seed: 0 in the checkpoint, 7 in config.json": ("train_config", {"seed": 7}),
    "train_config.lr: 0.002 in the checkpoint, 0.5 in config.json": ("train_config", {"lr": 0.5}),
    "train_config.batch_size: 8 in the checkpoint, 16 in config.json": ("train_config", {"batch_size": 16}),
    "train_config.weight_decay: 0.0001 in the checkpoint, 0.1 in config.json": ("train_config", {"weight_decay": 0.1}),
    "train_config.steps: 4 in the checkpoint, 2 in config.json": ("train_config", {"steps": 2}),
    "hyperparameters.temperature: 0.5 in the checkpoint, 0.1 in config.json": ("hyperparameters", {"temperature": 0.1}),
}


@pytest.mark.parametrize("stop_at", [2, None])
@pytest.mark.parametrize("said", CHANGES)
def test_resume_refuses_a_config_that_differs_from_the_checkpoint(said, stop_at, tmp_path):
    run = stopped_run(tmp_path, stop_at)
    part, values = CHANGES[said]
    edit_config(run, part, **values)
    with pytest.raises(UsageError, match=re.escape(said)) as error:
        nearfar.resume(run)
    assert "--accept-changes" in str(error.value)
    assert str(run / "config.json") in str(error.value)


def test_accepted_changes_of_a_config_are_used_and_logged(tmp_path, caplog):
    run = stopped_run(tmp_path)
    edit_config(run, "train_config", lr=0.5, schedule="constant", warmup_ratio=0.0)
    with caplog.at_level(logging.WARNING, "nearfar"):
        found = nearfar.resume(run, accept_changes=True)
    assert found.step == 4
    assert [line["lr"] for line in found.metrics if "lr" in line][-1] == 0.5
    assert "train_config.lr: 0.002 in the checkpoint, 0.5 in config.json" in caplog.text
    assert nearfar.resume(run).step == 4, "the last checkpoint holds the accepted config"


def test_machine_settings_and_the_place_of_the_data_may_change(tmp_path):
    run = stopped_run(tmp_path)
    edit_config(run, "runtime_config", num_workers=1, save_every=2)
    assert nearfar.resume(run).step == 4


def test_the_accept_changes_flag_needs_a_run_to_resume(tmp_path, capsys):
    assert main(["fit", "simclr", "--tiny", "--accept-changes", "--out", str(tmp_path / "run")]) == 2
    assert "--accept-changes belongs to --resume" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
