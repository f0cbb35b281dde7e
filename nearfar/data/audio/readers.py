"""Readers for folders of sound files.

soundfile decodes wav, flac, ogg and its other formats. Without soundfile, only 16-bit wav files can be read.

Labels come from the first of these sources that applies:
  a labels file    a .csv in the folder with a column file or filename (matched by name, any extension), a
                   column label, category, class or target, and optionally a column speaker, fold or group;
                   a split keeps each speaker, fold or group together
  sub-folders      two or more, with every file in one of them
  names            label_speaker_number.wav, for every file
"""

from __future__ import annotations

import csv
import os
import re
import wave
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int16

from nearfar.core.errors import MissingExtra, UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.data.audio.dataset import Sounds, SoundStore, crop_or_pad, quantize_waveform
from nearfar.data.common.arrays import encode_labels
from nearfar.data.images.decode import map_in_threads

SOUND_EXTENSIONS = (".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff", ".au")
FILE_NAME_PATTERN = re.compile(r"(?P<label>[^_]+)_(?P<group>[^_]+)_\d+")
FILE_COLUMNS, LABEL_COLUMNS, GROUP_COLUMNS = ("file", "filename"), ("label", "category", "class", "target"), ("speaker", "fold", "group")
DEFAULT_MAX_SAMPLE_RATE = 16_000
"""Default upper limit of the sample rate in Hz. Sounds with a higher rate are resampled to it."""
DEFAULT_LENGTH_PERCENTILE = 95
"""Percentage of the files that fit completely into the default clip length."""


@dataclass(frozen=True)
class SoundReadOptions:
    """Options for reading sounds. None means that the files decide."""

    sample_rate: int | None = None
    clip_length: int | None = None
    seconds: float | None = None
    on_error: str = "stop"
    progress: ProgressCallback | None = None


class BrokenSound(Exception):
    """Error for a sound file that cannot be read.

    Its message states the reason.
    """


def read_sound_folder(folder: Path, options: SoundReadOptions, source: str) -> Sounds:
    """Read a folder of sound files.

    Labels and groups are included if present.
    """
    paths = _sound_paths(folder)
    clips, kept, skipped, rate = _decode_all(folder, paths, options)
    labels, groups = _find_labels(folder, kept)
    (coded,), classes = encode_labels(None if labels is None else np.array(labels))
    store = SoundStore(_stack_clips(clips, options, rate), rate, tuple(kept), groups)
    return Sounds(store, np.arange(len(store)), coded, classes, source, skipped)


def read_sound_files(paths: Sequence[str | os.PathLike], options: SoundReadOptions, source: str) -> Sounds:
    """Read a list of sound files in the given order, without labels."""
    names = [os.path.expanduser(os.fspath(path)) for path in paths]
    clips, kept, skipped, rate = _decode_all(Path(), names, options)
    store = SoundStore(_stack_clips(clips, options, rate), rate, tuple(kept))
    return Sounds(store, np.arange(len(store)), source=source, skipped=skipped)


def _sound_paths(folder: Path) -> list[str]:
    """List the sound files relative to the folder, sorted.

    Hidden files are skipped.
    """
    files = [p.relative_to(folder) for p in folder.rglob("*") if p.is_file()]
    files = [p for p in files if not any(part.startswith((".", "__MACOSX")) for part in p.parts)]
    found = sorted(p.as_posix() for p in files if p.suffix.lower() in SOUND_EXTENSIONS)
    if not found:
        kinds = Counter(p.suffix.lower() or "without extension" for p in files)
        listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(5)) or "nothing: the folder is empty"
        raise UsageError(f"no sounds in {folder}: looked for {' '.join(SOUND_EXTENSIONS)}, found {listed}")
    return found


def _decode_all(folder: Path, paths: list[str], options: SoundReadOptions) -> tuple[list[np.ndarray], list[str], tuple[str, ...], int]:
    """Decode all files to clips of one sample rate.

    Returns:
        The clips, their paths, the paths of skipped files, and the sample rate.
    """

    def work(name: str) -> tuple[np.ndarray, int] | BrokenSound:
        try:
            return decode_sound(folder / name)
        except BrokenSound as e:
            return e

    found, skipped = {}, []
    for name, result in zip(paths, map_in_threads(work, paths, options.progress), strict=True):
        if not isinstance(result, BrokenSound):
            found[name] = result
        elif options.on_error == "skip":
            skipped.append(name)
        else:
            raise UsageError(f"{folder / name}: {result}. Leave such files out with --on-error skip") from result
    if not found:
        raise UsageError(f"none of {len(paths)} sound files can be read; the first is {folder / paths[0]}")
    rate = options.sample_rate or min(DEFAULT_MAX_SAMPLE_RATE, max(own for _, own in found.values()))
    clips = [quantize_waveform(resample(wave, own, rate)) for wave, own in found.values()]
    return clips, list(found), tuple(skipped), rate


def decode_sound(path: Path) -> tuple[Float[np.ndarray, " t"], int]:
    """Decode one sound file to mono.

    Returns:
        The mean of the channels in [-1, 1], shape `(t,)`, and the sample rate.

    Raises:
        BrokenSound: the file is missing, empty, not decodable, or holds values that are not finite.
    """
    if not path.is_file():
        raise BrokenSound("there is no such file")
    channels, rate = _decode_with_soundfile(path)
    if not len(channels):
        raise BrokenSound("it contains no sound")
    if not np.isfinite(channels).all():
        raise BrokenSound("it contains values that are not finite numbers")
    return channels.mean(1), rate


def _decode_with_soundfile(path: Path) -> tuple[Float[np.ndarray, "t c"], int]:
    try:
        import soundfile
    except ImportError as e:
        if path.suffix.lower() == ".wav":
            return read_wav(path)
        raise MissingExtra("soundfile", "audio", f"reading {path.suffix} files") from e
    try:
        return soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError) as e:
        raise BrokenSound(f"it cannot be decoded ({str(e).splitlines()[0].split(': ')[-1].rstrip('.')})") from e


def read_wav(path: Path) -> tuple[Float[np.ndarray, "t c"], int]:
    """Read a 16-bit PCM wav file with the standard library.

    Returns:
        The audio samples of all channels, shape `(t, c)`, and the sample rate.

    Raises:
        BrokenSound: the file is damaged or does not have 16 bits per sample.
    """
    try:
        with wave.open(str(path), "rb") as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError, OSError) as e:
        raise BrokenSound(f"it cannot be decoded without soundfile ({e or 'it ends too early'}): pip install 'nearfar[audio]'") from e
    if width != 2:
        raise BrokenSound(f"it has {8 * width} bits per sample, and only 16 can be read without soundfile: pip install 'nearfar[audio]'")
    whole = len(data) // (2 * channels) * channels
    return np.frombuffer(data, "<i2", whole).reshape(-1, channels).astype(np.float32) / 32768, rate


def resample(waveform: Float[np.ndarray, " t"], from_rate: int, to_rate: int) -> Float[np.ndarray, " s"]:
    """Convert a waveform to another sample rate.

    A polyphase filter removes all frequencies above the lower of the two Nyquist frequencies.
    """
    if from_rate == to_rate:
        return waveform
    from scipy.signal import resample_poly

    common = gcd(from_rate, to_rate)
    return resample_poly(waveform, to_rate // common, from_rate // common).astype(np.float32)


def _stack_clips(clips: list[Int16[np.ndarray, "..."]], options: SoundReadOptions, sample_rate: int) -> Int16[torch.Tensor, "n t"]:
    lengths = np.array([len(clip) for clip in clips])
    asked = options.clip_length or (None if options.seconds is None else max(1, round(options.seconds * sample_rate)))
    samples = asked or int(np.percentile(lengths, DEFAULT_LENGTH_PERCENTILE, method="inverted_cdf"))
    return torch.cat([crop_or_pad(torch.from_numpy(clip)[None], samples) for clip in clips])


def _find_labels(folder: Path, paths: list[str]) -> tuple[list[str] | None, tuple[str, ...] | None]:
    """Find labels and groups of the files.

    Each is None if no source provides it.
    """
    for table in sorted(folder.glob("*.csv")):
        if found := _from_table(table, paths):
            return found
    heads = [path.split("/")[0] for path in paths if "/" in path]
    if len(heads) == len(paths) and len(set(heads)) > 1:
        return heads, None
    named = [FILE_NAME_PATTERN.fullmatch(Path(path).stem) for path in paths]
    if all(named):
        return [m["label"] for m in named if m], tuple(m["group"] for m in named if m)
    return None, None


def _from_table(table: Path, paths: list[str]) -> tuple[list[str], tuple[str, ...] | None] | None:
    """Read labels and groups from a table.

    The table must have a file column and a label column. The table must contain every file. Return None if it
    has no such columns.
    """
    try:
        with open(table, newline="", encoding="utf-8-sig") as f:
            rows = list(csv.DictReader(f))
    except (UnicodeDecodeError, csv.Error) as e:
        raise UsageError(f"{table} is not a text table: {e}") from e
    names = [name.strip().lower() for name in rows[0] if name] if rows else []
    file, label, group = (next((n for n in known if n in names), None) for known in (FILE_COLUMNS, LABEL_COLUMNS, GROUP_COLUMNS))
    if file is None or label is None:
        return None
    tidy = [{(k or "").strip().lower(): (v or "").strip() if isinstance(v, str) else "" for k, v in row.items()} for row in rows]
    chosen = _match_rows(paths, {row[file]: row for row in tidy}, table, file)
    return [row[label] for row in chosen], None if group is None else tuple(row[group] for row in chosen)


def _match_rows(paths: list[str], rows: dict[str, dict[str, str]], table: Path, column: str) -> list[dict[str, str]]:
    """Return the table row of each file.

    A file matches by its path, with or without the extension, or by its bare name if that name is unique.
    """
    by_path = {Path(name).with_suffix("").as_posix(): row for name, row in rows.items()}
    by_path |= {Path(name).as_posix(): row for name, row in rows.items()}
    named, there = (Counter(Path(name).stem for name in names) for names in (rows, paths))
    by_stem = {Path(name).stem: row for name, row in rows.items()}
    found = []
    for path in paths:
        whole, stem = Path(path).with_suffix("").as_posix(), Path(path).stem
        if whole not in by_path and stem not in by_stem:
            raise UsageError(f"{table} has no line for the file {path}: name it in the column {column}, or move it elsewhere")
        if whole not in by_path and max(named[stem], there[stem]) > 1:
            raise UsageError(f"{table}: several files are named {stem}, for example {path}: write full paths in the column {column}")
        found.append(by_path.get(whole) or by_stem[stem])
    return found
