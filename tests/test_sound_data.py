"""Sounds from files, arrays and names: what is read, how it is labeled and divided, and what is said of what cannot be."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import nearfar
from nearfar.core import TrainConfig, UsageError
from nearfar.data.audio.dataset import as_clips, crop_or_pad
from nearfar.data.audio.inputs import AudioInputs
from nearfar.data.audio.load import load_all_sounds
from nearfar.data.audio.readers import SoundReadOptions, decode_sound, resample
from nearfar.data.samples.tones import INSTRUMENTS, TUNES, make_tones

soundfile = pytest.importorskip("soundfile")


def tone(hertz: float, seconds: float, rate: int = 8000) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def write(path, wave, rate=8000):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, wave, rate)


def opened(where, **run):
    return AudioInputs().load_splits(str(where), TrainConfig(data=str(where), **run))


def test_formats_channels_and_rates_become_one(tmp_path):
    wave = tone(440, 0.5)
    write(tmp_path / "a.wav", wave)
    write(tmp_path / "b.flac", np.stack([wave * 1.5, wave * 0.5], 1))
    write(tmp_path / "c.wav", tone(440, 0.5, 16000), 16000)
    write(tmp_path / "d.ogg", wave)
    data = load_all_sounds(tmp_path, SoundReadOptions(sample_rate=8000))
    clips = data.read(np.arange(4)).float().numpy() / 32767
    assert data.sizes() == {"n": 4, "sample_rate": 8000, "samples": 4000, "classes": 0}
    np.testing.assert_allclose(clips[0], wave, atol=1e-4)
    np.testing.assert_allclose(clips[1], wave, atol=1e-4)
    np.testing.assert_allclose(clips[2][200:-200], wave[200:-200], atol=5e-3)
    assert np.corrcoef(clips[3], wave)[0, 1] > 0.95
    assert [data.name(i) for i in range(4)] == ["a.wav", "b.flac", "c.wav", "d.ogg"]


def test_wav_of_16_bits_is_read_without_soundfile(tmp_path, monkeypatch):
    wave = tone(440, 0.25)
    write(tmp_path / "one.wav", wave)
    write(tmp_path / "two.wav", np.stack([wave * 1.5, -wave], 1), 11025)
    with_it = [decode_sound(tmp_path / name) for name in ("one.wav", "two.wav")]
    monkeypatch.setitem(sys.modules, "soundfile", None)
    for name, (expected, rate) in zip(("one.wav", "two.wav"), with_it, strict=True):
        found, own = decode_sound(tmp_path / name)
        np.testing.assert_array_equal(found, expected)
        assert own == rate


def test_without_soundfile_other_files_are_refused_by_name(tmp_path, monkeypatch):
    wave = tone(440, 0.25)
    soundfile.write(tmp_path / "deep.wav", wave, 8000, subtype="PCM_24")
    soundfile.write(tmp_path / "floats.wav", wave, 8000, subtype="FLOAT")
    write(tmp_path / "fine.wav", wave)
    write(tmp_path / "free.flac", wave)
    (tmp_path / "cut.wav").write_bytes((tmp_path / "fine.wav").read_bytes()[:20])
    monkeypatch.setitem(sys.modules, "soundfile", None)
    for name, said in (("deep.wav", "24 bits per sample"), ("floats.wav", "unknown format: 3"), ("cut.wav", "without soundfile")):
        with pytest.raises(UsageError, match=rf"{name}: it .*{said}.*nearfar\[audio\]"):
            load_all_sounds([tmp_path / name], SoundReadOptions())
    with pytest.raises(UsageError, match=r"reading \.flac files needs the package 'soundfile'"):
        load_all_sounds([tmp_path / "free.flac"], SoundReadOptions())


def test_resampling_keeps_what_fits_and_drops_what_does_not():
    low, high = tone(1000, 0.5, 16000), tone(6000, 0.5, 16000)
    found = resample(low + high, 16000, 8000)
    np.testing.assert_allclose(found[200:-200], tone(1000, 0.5)[200:-200], atol=0.01)
    assert resample(low, 16000, 16000) is low
    assert len(resample(tone(100, 0.5, 44100), 44100, 8000)) == 4000


def test_longer_clips_lose_both_ends_and_shorter_ones_are_filled_up():
    clip = torch.arange(1, 11, dtype=torch.int16)[None]
    assert crop_or_pad(clip, 4).tolist() == [[4, 5, 6, 7]]
    assert crop_or_pad(clip, 12).tolist() == [[*range(1, 11), 0, 0]]


def test_the_default_length_holds_nearly_all_and_seconds_sets_it(tmp_path):
    for i in range(20):
        write(tmp_path / f"{i:02}.wav", tone(300, 2.0 if i == 7 else 0.1 + 0.01 * i))
    assert load_all_sounds(tmp_path, SoundReadOptions()).clip_length == 2320
    assert load_all_sounds(tmp_path, SoundReadOptions(seconds=0.25)).clip_length == 2000


def test_names_of_spoken_digits_give_labels_and_speakers(tmp_path):
    for digit in "0123":
        for speaker in ("theo", "anna", "lucas"):
            for take in range(2):
                write(tmp_path / "recordings" / f"{digit}_{speaker}_{take}.wav", tone(200 + 50 * int(digit), 0.1))
    for seed, speaker in enumerate(("anna", "lucas", "theo", "anna")):
        splits = opened(tmp_path, seed=seed)
        assert splits.train.classes == ("0", "1", "2", "3")
        assert set(splits.test.groups) == {speaker}
        assert speaker not in splits.train.groups
        assert len(splits.test) == 8
    names = [splits.train.name(i) for i in range(len(splits.train))]
    assert [splits.train.classes[y] for y in splits.train.labels] == [n.split("/")[1][0] for n in names]
    again = AudioInputs().load_splits(str(tmp_path), TrainConfig(data=str(tmp_path), seed=5), test_ids=splits.test_ids)
    assert again.test.fingerprint == splits.test.fingerprint


def test_a_table_gives_labels_and_folds_whatever_the_extension(tmp_path):
    for i in range(6):
        write(tmp_path / "audio" / f"{i}-x.flac", tone(300, 0.1))
    lines = [f"{i}-x.wav,{i % 3 + 1},{'dog' if i % 2 else 'rain'},take" for i in range(6)]
    (tmp_path / "esc.csv").write_text("filename,fold,category,extra\n" + "\n".join(lines) + "\n")
    splits = opened(tmp_path, seed=1)
    assert splits.train.classes == ("dog", "rain")
    assert set(splits.test.groups) == {"2"}
    assert [splits.test.name(i) for i in range(2)] == ["audio/1-x.flac", "audio/4-x.flac"]
    (tmp_path / "esc.csv").write_text("filename,fold,category,extra\n" + "\n".join(lines[:-1]) + "\n")
    with pytest.raises(UsageError, match=r"esc\.csv has no line for the file audio/5-x\.flac"):
        opened(tmp_path)


def test_sub_folders_are_classes_and_are_divided_like_images(tmp_path):
    for name in ("cat", "dog"):
        for i in range(5):
            write(tmp_path / name / f"1_take_{i}.wav", tone(300, 0.1))
    splits = opened(tmp_path)
    assert splits.train.classes == ("cat", "dog")
    assert splits.train.groups is None
    assert sorted(splits.test.labels) == [0, 1]


def test_a_broken_file_is_named_or_left_out(tmp_path):
    for i in range(3):
        write(tmp_path / f"{i}.wav", tone(300, 0.1))
    (tmp_path / "torn.wav").write_bytes((tmp_path / "0.wav").read_bytes()[:20])
    write(tmp_path / "void.wav", np.zeros(0, np.float32))
    with pytest.raises(UsageError, match=r"torn\.wav: it cannot be decoded .*--on-error skip"):
        opened(tmp_path)
    data = load_all_sounds(tmp_path, SoundReadOptions(on_error="skip"))
    assert data.skipped == ("torn.wav", "void.wav")
    assert len(data) == 3
    soundfile.write(tmp_path / "nan.wav", np.full(100, np.nan), 8000, subtype="FLOAT")
    with pytest.raises(UsageError, match=r"nan\.wav: it contains values that are not finite numbers"):
        load_all_sounds([tmp_path / "nan.wav"], SoundReadOptions())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tone", "Did you mean 'tones'"),
        (np.zeros((2, 3, 4), np.float32), r"sounds must have the shape \(n, time\)"),
        (np.full((2, 30), 1.5, np.float32), r"outside \[-1, 1\]"),
        (np.zeros((2, 30), np.int64), "int16 or floats"),
        ({"a": 1}, "cannot read sounds from a dict"),
    ],
)
def test_what_cannot_be_read_is_said(spec, message):
    with pytest.raises(UsageError, match=message):
        load_all_sounds(spec, SoundReadOptions())


def test_a_folder_without_sounds_says_what_it_holds(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(UsageError, match=r"no sounds in .*looked for \.wav .*found 1 \.txt"):
        load_all_sounds(tmp_path, SoundReadOptions())
    with pytest.raises(UsageError, match="cannot read sounds from the file"):
        load_all_sounds(tmp_path / "notes.txt", SoundReadOptions())


def test_arrays_are_brought_to_the_net():
    wave = torch.sin(torch.arange(3000) / 9).repeat(3, 1)
    data = load_all_sounds((wave, ["a", "b", "a"]), SoundReadOptions(sample_rate=8000, clip_length=4000))
    assert data.sizes() == {"n": 3, "sample_rate": 8000, "samples": 4000, "classes": 2}
    torch.testing.assert_close(as_clips(wave, "x").float() / 32767, wave, atol=1e-4, rtol=0)


def test_subsets_share_the_clips_and_keep_names_and_fingerprints():
    data = make_tones()
    part = data.subset([5, 3])
    assert part.store is data.store
    assert part.name(1) == data.name(3)
    assert part.fingerprint == part.drop_labels().fingerprint != data.fingerprint
    assert part.drop_labels().labels is None


def test_tones_are_the_same_everywhere_and_complete():
    data = make_tones()
    assert data.classes == tuple(TUNES)
    assert set(data.groups or ()) == set(INSTRUMENTS)
    assert (np.bincount(data.labels) == 80).all()
    assert int(data.read([7]).abs().max()) > 1000
    louder = data.read(np.arange(len(data))).double().square().mean(1).sqrt()
    assert louder.min() > 100


def test_spoken_digits_as_they_are_kept(data_folder):
    if not (data_folder / "fsdd").is_dir():
        pytest.skip("the spoken digits are not here")
    splits = opened(data_folder / "fsdd", seed=2)
    assert (len(splits.train), len(splits.test), set(splits.test.groups)) == (2500, 500, {"lucas"})
    assert (np.bincount(splits.test.labels) == 50).all()


def test_a_run_is_evaluated_on_the_instrument_it_did_not_hear(tmp_path):
    trained = nearfar.fit("nandan-vepa", preset="tiny", steps=2, batch_size=16, seed=3, out=tmp_path / "run")
    from nearfar.train.model_data import load_model_splits

    splits = load_model_splits(nearfar.load(tmp_path / "run"))
    assert set(splits.test.groups) == {"reed"}
    assert trained.encode(splits.test).shape == (128, trained.net.encoder.dim)


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    for who in ("alice", "bob"):
        for i in range(3):
            write(tmp_path / who / f"{i}.wav", tone(300, 0.1))
    rows = [f"{who}/{i}.wav,{who}" for who in ("alice", "bob") for i in range(3)]
    (tmp_path / "labels.csv").write_text("file,label\n" + "\n".join(rows) + "\n")
    sounds = load_all_sounds(str(tmp_path), SoundReadOptions())
    assert [sounds.classes[y] for y in sounds.labels] == [sounds.name(i).split("/")[0] for i in range(6)]
    (tmp_path / "labels.csv").write_text("file,label\n" + "\n".join(row.split("/")[1] for row in rows) + "\n")
    with pytest.raises(UsageError, match=r"several files are named 0, for example alice/0\.wav: write full paths in the column file"):
        load_all_sounds(str(tmp_path), SoundReadOptions())
