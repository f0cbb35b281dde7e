"""Checkpoints: what is loaded is what was saved; damage is noticed wherever it is; a full disk costs nothing old."""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil

import pytest
import torch
from helpers import DiskLog, assert_same_tensors, stored, tiny_session
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nearfar
from nearfar.core import NearfarError, UsageError
from nearfar.core.files import atomic_write
from nearfar.train import checkpoint
from nearfar.train.training_loop import train


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished MoCo run: shared parts (encoder inside query), a queue, a follower, two checkpoints."""
    run = tmp_path_factory.mktemp("runs") / "run"
    nearfar.fit("moco", preset="tiny", steps=4, batch_size=32, save_every=2, out=run)
    return run


def test_loaded_is_what_was_saved(tmp_path):
    session = tiny_session("byol", steps=3, batch_size=32)
    train(session)
    checkpoint.save_checkpoint(tmp_path, 3, session.net, session.optimizers, {"a": 1})
    other = tiny_session("byol", steps=3, batch_size=32, seed=9)
    found = checkpoint.find_newest_checkpoint(tmp_path)
    assert found is not None
    assert (found.step, found.manifest["config"]) == (3, {"a": 1})
    found.load_into(other.net, other.optimizers)
    assert_same_tensors(session.net.state_dict(), other.net.state_dict())
    a, b = (s.optimizers[0].state_dict() for s in (session, other))
    assert a["param_groups"] == b["param_groups"]
    assert a["state"].keys() == b["state"].keys()
    for index in a["state"]:
        assert_same_tensors(a["state"][index], b["state"][index])


def test_a_checkpoint_is_on_the_disk_before_it_is_renamed(tmp_path, monkeypatch):
    session = tiny_session("byol", steps=3, batch_size=32)
    disk = DiskLog(monkeypatch)
    disk.assert_flushed_around_rename(checkpoint.save_checkpoint(tmp_path, 0, session.net, session.optimizers, {}))


def test_an_atomic_file_is_on_the_disk_before_it_is_renamed(tmp_path, monkeypatch):
    disk = DiskLog(monkeypatch)
    with atomic_write(tmp_path / "file") as f:
        f.write(b"some bytes")
    disk.assert_flushed_around_rename(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"some bytes"


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "lars"])
def test_every_optimizer_goes_on_bit_exactly(optimizer, tmp_path):
    whole, half = (tiny_session("simclr", steps=6, batch_size=32, optimizer=optimizer, grad_clip=0.5) for _ in range(2))
    train(whole)
    stop_after(half, 3)
    checkpoint.save_checkpoint(tmp_path, 3, half.net, half.optimizers, {})
    again = tiny_session("simclr", steps=6, batch_size=32, optimizer=optimizer, grad_clip=0.5)
    checkpoint.verify_checkpoint(next(tmp_path.glob("step-*"))).load_into(again.net, again.optimizers)
    again.step = 3
    train(again)
    assert_same_tensors(whole.net.state_dict(), again.net.state_dict())


def stop_after(session, step):
    from test_contract import StopAt

    with pytest.raises(RuntimeError, match="on purpose"):
        train(session, [StopAt(step)])


def channels_last_session(optimizer: str):
    """A session whose convolutions lie in memory as they do on a GPU: channels last."""
    session = tiny_session("simclr", steps=4, batch_size=32, optimizer=optimizer, lr=0.05)
    session.net.to(memory_format=torch.channels_last)
    return session


def strides(tensor: torch.Tensor) -> list[int]:
    """Strides of the axes that are longer than 1; the stride of an axis of length 1 has no meaning."""
    return [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def layouts(session) -> dict[str, tuple]:
    """Shape, strides, dtype and device of each tensor that an optimizer keeps."""
    found = {}
    for number, optimizer in enumerate(session.optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                if isinstance(value, torch.Tensor):
                    found[f"{number}.{index}.{name}"] = (value.shape, strides(value), value.dtype, value.device)
    return found


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "lars", "adagrad"])
def test_loaded_optimizer_state_has_the_memory_layout_of_its_parameters(optimizer, tmp_path):
    session, other = channels_last_session(optimizer), channels_last_session(optimizer)
    stop_after(session, 2)
    assert any(p.ndim == 4 and not p.is_contiguous() for p in session.net.parameters()), "the test needs such a parameter"
    checkpoint.save_checkpoint(tmp_path, 2, session.net, session.optimizers, {})
    checkpoint.verify_checkpoint(next(tmp_path.glob("step-*"))).load_into(other.net, other.optimizers)
    assert layouts(other) == layouts(session)
    for parameter, state in other.optimizers[0].state.items():
        for value in state.values():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                expected = (parameter.stride(), parameter.dtype, parameter.device)
                assert (value.stride(), value.dtype, value.device) == expected


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "lars"])
def test_training_in_channels_last_memory_resumes_bit_exactly(optimizer, tmp_path):
    whole, half, again = (channels_last_session(optimizer) for _ in range(3))
    train(whole)
    stop_after(half, 2)
    checkpoint.save_checkpoint(tmp_path, 2, half.net, half.optimizers, {})
    checkpoint.verify_checkpoint(next(tmp_path.glob("step-*"))).load_into(again.net, again.optimizers)
    again.step = 2
    train(again)
    assert_same_tensors(whole.net.state_dict(), again.net.state_dict())


def test_only_the_newest_two_are_kept_and_no_temporary_names(finished):
    names = sorted(os.listdir(finished / "checkpoints"))
    assert names == ["step-000000002", "step-000000004"]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    where=st.floats(0, 1, exclude_max=True),
    file=st.sampled_from(["net.safetensors", "optimizer-0.safetensors", "manifest.json"]),
    cut=st.booleans(),
    bit=st.integers(0, 7),
)
def test_a_flipped_bit_or_a_truncation_anywhere_is_noticed(finished, tmp_path_factory, caplog, where, file, cut, bit):
    copy = tmp_path_factory.mktemp("copy") / "run"
    shutil.copytree(finished, copy)
    victim = copy / "checkpoints" / "step-000000004" / file
    data = bytearray(victim.read_bytes())
    at = int(where * len(data))
    if cut:
        del data[at:]
    else:
        data[at] ^= 1 << bit
    victim.write_bytes(data)
    with caplog.at_level(logging.WARNING, "nearfar"):
        assert nearfar.load(copy).step == 2
    assert "damaged" in caplog.text
    assert "step-000000004" in caplog.text


def test_a_damaged_newest_is_trained_again_to_the_same_bits(finished, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(finished, copy)
    (copy / "checkpoints" / "step-000000004" / "net.safetensors").write_bytes(b"")
    nearfar.resume(copy)
    assert_same_tensors(stored(finished), stored(copy))


def test_all_damaged_is_one_clear_message(finished, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(finished, copy)
    for manifest in copy.glob("checkpoints/*/manifest.json"):
        manifest.write_text("{}")
    with pytest.raises(NearfarError, match=r"has no checkpoint yet.*--resume"):
        nearfar.load(copy)


def test_a_full_disk_keeps_the_old_checkpoint_and_says_so(tmp_path, caplog):
    """A real limit on the size of files, as the kernel enforces it."""
    session = tiny_session("simclr", steps=4, batch_size=32)
    checkpoint.save_checkpoint(tmp_path, 0, session.net, session.optimizers, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError):  # noqa: PT011  (the number differs: file too large, no space left)
            checkpoint.save_checkpoint(tmp_path, 1, session.net, session.optimizers, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    found = checkpoint.find_newest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 0
    assert os.listdir(tmp_path) == ["step-000000000"]


def test_training_goes_on_after_a_failed_save(tmp_path, caplog):
    """Only saves fail (small files such as metrics still fit); the last save fails too, and that ends with a clear error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with caplog.at_level(logging.WARNING, "nearfar"), pytest.raises(NearfarError, match=r"step 4 could not be written.*--resume"):
            nearfar.fit("simclr", preset="tiny", steps=4, batch_size=32, save_every=2, out=tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "step 2 could not be written" in caplog.text
    assert nearfar.resume(tmp_path / "run").step == 4


def test_unknown_formats_are_refused(finished, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(finished, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "format": 99}))
    with pytest.raises(UsageError, match=r"format 99.*reads format 2"):
        nearfar.load(copy)


def damaged(config, field):
    """The same without a field, which dots lead to."""
    first, _, rest = field.partition(".")
    return {name: damaged(value, rest) if name == first else value for name, value in config.items() if name != field}


@pytest.mark.parametrize("field", ["recipe", "hyperparameters", "train_config", "sizes", "sizes.channels"])
def test_a_field_that_a_config_lacks_is_named(finished, tmp_path, field):
    copy = tmp_path / "run"
    shutil.copytree(finished, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(damaged(config, field)))
    with pytest.raises(UsageError) as error:
        nearfar.load(copy)
    assert str(copy) in str(error.value)
    assert "config.json" in str(error.value)
    if field != "recipe":
        assert f"has no valid {field!r}" in str(error.value)
        assert "checkpoints" in str(error.value), "where a copy of it is"


@pytest.mark.parametrize("field", ["runtime_config", "train_config.steps", "data", "data.fingerprint"])
def test_a_field_that_a_config_lacks_is_named_by_resume(finished, tmp_path, field):
    copy = tmp_path / "run"
    shutil.copytree(finished, copy)
    config = json.loads((copy / "config.json").read_text())
    config["train_config"]["steps"] = 6
    (copy / "config.json").write_text(json.dumps(damaged(config, field)))
    with pytest.raises(UsageError, match=rf"config\.json has no valid '{field}.*checkpoints"):
        nearfar.resume(copy, accept_changes=True)


def test_changed_data_are_refused(tmp_path):
    images = (torch.arange(64 * 64) % 251).to(torch.uint8).view(64, 8, 8).numpy()
    nearfar.fit("simclr", data=images, steps=2, batch_size=8, save_every=1, out=tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["train_config"]["steps"] = 4
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    changed = images.copy()
    changed[0, 0, 0] ^= 1
    with pytest.raises(NearfarError, match="have changed"):
        nearfar.resume(tmp_path / "run", data=changed, accept_changes=True)
    assert nearfar.resume(tmp_path / "run", data=images, accept_changes=True).step == 4
