"""Recorded games: the file and its damage, the recorder against the emulator, frames in episodes, and what probes tell of them."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.metrics import f1_score

from nearfar.cli.main import main
from nearfar.core import NearfarError, RandomKey, TrainConfig, UsageError
from nearfar.data.common.image_stores import InMemoryImageStore
from nearfar.data.frames.atari_ram import ANNOTATED_GAMES, category_mean, get_variable_bytes, group_by_category
from nearfar.data.frames.dataset import Frames, RecordingStore, split_probe_episodes
from nearfar.data.frames.game_recorder import FRAME_SKIP, MAX_IDLE_FRAMES, record_game, start_emulator
from nearfar.data.frames.load import load_all_frames, read_recording
from nearfar.data.frames.readers import FRAMES_PER_BLOCK, Recording, create_recording, open_recording
from nearfar.data.samples.bounce import make_bounce
from nearfar.evaluate import atari_probe
from nearfar.evaluate.state_variables import entropy, evaluate_converged_probes, evaluate_majority_baseline, select_informative
from nearfar.modalities import find_modality
from nearfar.recipes import load_method

HEADER = {"game": "none", "height": 6, "width": 5, "samples": 4, "ram": 3, "variables": {"ball_x": 1, "score": 2}}


def written(path, lengths=(70, 50, 30), seed=0) -> dict[str, np.ndarray]:
    """A small recording of noise in episodes of these lengths, and what was written."""
    rng, n = np.random.default_rng(seed), sum(lengths)
    shapes = {"pixels": (6, 5), "sound": (4,), "ram": (3,)}
    parts = {name: rng.integers(0, 256, (n, *shape), dtype=np.uint8) for name, shape in shapes.items()}
    with create_recording(path, HEADER) as writer:
        frames = iter(range(n))
        for length in lengths:
            writer.begin_episode()
            for i in (next(frames) for _ in range(length)):
                writer.add_frame(parts["pixels"][i], parts["sound"][i], parts["ram"][i])
    return parts


def read_all(recording: Recording) -> None:
    for part in (recording.read_pixels, recording.read_sound, recording.read_ram):
        part(np.arange(len(recording)))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("recording") / "small.games"
    return path, written(path)


@given(st.lists(st.integers(0, 149), min_size=1, max_size=40))
def test_any_frames_in_any_order_are_those_that_were_written(small, rows):
    path, parts = small
    recording = open_recording(path)
    assert len(recording) == 150 > 2 * FRAMES_PER_BLOCK
    assert recording.episode_lengths.tolist() == [70, 50, 30]
    at = np.array(rows)
    assert np.array_equal(recording.read_pixels(at), parts["pixels"][at])
    assert np.array_equal(recording.read_sound(at), parts["sound"][at])
    assert np.array_equal(recording.read_ram(at), parts["ram"][at])


def test_one_frame_is_read_without_the_rest(small, tmp_path):
    path, parts = small
    recording = open_recording(path)
    data = bytearray(path.read_bytes())
    start, stop = int(recording.block_index[0, 0]), int(recording.block_index[1, 0])
    data[start:stop] = bytes(stop - start)  # the first block is gone
    broken = tmp_path / "broken.games"
    broken.write_bytes(data)
    at = np.array([149, 64])
    assert np.array_equal(open_recording(broken).read_pixels(at), parts["pixels"][at])
    with pytest.raises(UsageError, match=r"broken\.games is damaged: the pixels of the frames 0 to 63"):
        open_recording(broken).read_pixels(np.array([3]))
    with pytest.raises(UsageError, match="no frame 150"):
        recording.read_pixels(np.array([150]))


def test_every_flipped_bit_and_every_missing_end_is_noticed(small, tmp_path):
    path, _ = small
    whole, copy = path.read_bytes(), tmp_path / "copy.games"
    for at in range(0, len(whole), 41):
        copy.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(UsageError, match=r"copy\.games"):
            read_all(open_recording(copy))
    for length in (0, 5, 16, 19, 100, len(whole) // 2, len(whole) - 1):
        copy.write_bytes(whole[:length])
        with pytest.raises(UsageError, match=r"copy\.games"):
            open_recording(copy)
    copy.write_bytes(whole + b"more")
    with pytest.raises(UsageError, match="its end is missing"):
        open_recording(copy)
    with pytest.raises(UsageError, match="cannot read"):
        open_recording(tmp_path / "nowhere.games")


@pytest.mark.slow
def test_a_writer_that_is_killed_or_fails_leaves_nothing_under_the_name(tmp_path):
    code = (
        "import sys, numpy as np\n"
        "from nearfar.data.frames.readers import writing\n"
        "with writing(sys.argv[1], {}) as writer:\n"
        "    writer.begin_episode()\n"
        "    while True:\n"
        "        writer.add(np.zeros((6, 5), np.uint8), np.zeros(4, np.uint8), np.zeros(3, np.uint8))\n"
        "        print('.', end='', flush=True)\n"
    )
    target = tmp_path / "a.games"
    process = subprocess.Popen([sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(200)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    process.stdout.close()
    assert not target.exists()
    with pytest.raises(RuntimeError), create_recording(target, HEADER):
        raise RuntimeError
    assert not target.exists()
    written(target)
    assert len(open_recording(target)) == 150


def test_a_recording_as_data_in_memory_and_from_its_file(small):
    path, parts = small
    data = load_all_frames(path)
    assert isinstance(data, Frames)
    assert (len(data), data.shape, data.variables) == (150, (1, 6, 5), ("ball_x", "score"))
    assert np.array_equal(data.values, parts["ram"][:, 1:])
    assert np.bincount(data.episode).tolist() == [70, 50, 30]
    from_file = Frames(RecordingStore(open_recording(path)), data.ids, source="x", episode=data.episode)
    rows = np.array([120, 3, 3, 69])
    assert torch.equal(from_file.read(rows), data.read(rows))
    assert torch.equal(data.read(rows)[:, 0], torch.from_numpy(parts["pixels"][rows]))
    assert from_file.fingerprint == data.fingerprint == load_all_frames(path).fingerprint
    assert data.drop_labels().values is None
    assert data.drop_labels().fingerprint == data.fingerprint


# the recorder


@pytest.fixture(scope="module")
def ale_py():
    return pytest.importorskip("ale_py", reason="ale-py is not installed: pip install 'nearfar[control]'")


@pytest.fixture(scope="module")
def games(ale_py, tmp_path_factory):
    folder = tmp_path_factory.mktemp("games")
    return {name: record_game(name, frames, folder / f"{name}.games", seed=3) for name, frames in (("breakout", 420), ("pong", 150))}


def test_the_same_seed_gives_the_same_bytes(games, tmp_path):
    again, other = record_game("pong", 150, tmp_path / "again.games", seed=3), record_game("pong", 150, tmp_path / "other.games", seed=4)
    assert again.path.read_bytes() == games["pong"].path.read_bytes()
    assert other.path.read_bytes() != again.path.read_bytes()
    longer = record_game("pong", 170, tmp_path / "longer.games", seed=3)  # an episode does not depend on what is recorded after it
    assert np.array_equal(longer.read_pixels(np.arange(150)), again.read_pixels(np.arange(150)))


def test_frames_sound_and_ram_are_those_of_the_emulator(games, ale_py):
    """The second episode of Breakout, played again step by step."""
    recording = games["breakout"]
    first, length = int(recording.episode_lengths[0]), int(recording.episode_lengths[1])
    rng_key = RandomKey(3)("game", "breakout", "episode", 1)
    ale = start_emulator(ale_py, "breakout", rng_key)
    actions = ale.getMinimalActionSet()
    idle = int(rng_key("idle").integers(np.zeros(1, np.int64), MAX_IDLE_FRAMES + 1)[0])
    for _ in range(idle):
        ale.act(actions[0])
    rows = np.arange(first, first + length)
    pixels, sound, ram = recording.read_pixels(rows), recording.read_sound(rows), recording.read_ram(rows)
    action = None
    for t in range(length):
        if not (t and rng_key("keep").uniform(np.array([t]))[0] < 0.25):
            action = actions[int(rng_key("action").integers(np.array([t]), len(actions))[0])]
        screens = []
        for _ in range(FRAME_SKIP):
            ale.act(action)
            screens.append(ale.getScreenGrayscale())
        assert np.array_equal(ram[t], ale.getRAM())
        assert np.array_equal(sound[t], ale.getAudio())
        assert np.array_equal(pixels[t], np.maximum(screens[-1], screens[-2]))
    assert not ale.game_over()


def test_the_annotation_names_the_byte_that_moves_with_the_ball(games):
    data = read_recording(games["pong"], "pong")
    field = data.read(np.arange(len(data)))[:, 0, 35:193, 22:138].numpy()  # between the walls and the bats
    ball = field != np.bincount(field.ravel()).argmax()
    seen = np.flatnonzero(ball.any((1, 2)))
    assert len(seen) > 50
    down, across = (np.array([np.nonzero(ball[t])[axis].mean() for t in seen]) for axis in (0, 1))
    values = dict(zip(data.variables, data.values[seen].T, strict=True))
    assert np.corrcoef(across, values["ball_x"])[0, 1] > 0.99
    assert np.corrcoef(down, values["ball_y"])[0, 1] > 0.99


def test_annotated_games_exist_and_unknown_ones_are_named(ale_py, tmp_path, capsys):
    from ale_py import roms

    assert set(ANNOTATED_GAMES) <= set(roms.get_all_rom_ids())
    assert all(0 <= byte < 128 for game in ANNOTATED_GAMES for byte in get_variable_bytes(game).values())
    assert main(["record", "ponk", "--to", str(tmp_path / "x.games")]) == 2
    assert "unknown game 'ponk'. Did you mean 'pong'" in capsys.readouterr().err
    assert main(["record", "pong", "--to", str(tmp_path / "x.npz")]) == 2
    assert "ends in .games" in capsys.readouterr().err
    for flags in (["--frames", "0"], ["--sticky", "1"]):
        assert main(["record", "pong", "--to", str(tmp_path / "x.games"), *flags]) == 2
        assert flags[0] in capsys.readouterr().err


def test_without_the_emulator_the_extra_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    assert main(["record", "pong", "--to", str(tmp_path / "x.games")]) == 2
    assert "nearfar[control]" in capsys.readouterr().err


@pytest.fixture(scope="module")
def bouncing(tmp_path_factory):
    """The built-in game as if it had been recorded."""
    path, data = tmp_path_factory.mktemp("bouncing") / "bounce.games", make_bounce().subset(np.arange(15 * 40))
    frames, values = data.read(np.arange(len(data)))[:, 0].numpy(), data.values.astype(np.uint8)
    variables = dict(zip(data.variables, range(3), strict=True))
    header = {"game": "bounce", "height": 42, "width": 32, "samples": 1, "ram": 3, "variables": variables}
    with create_recording(path, header) as writer:
        for frame, ram, start in zip(frames, values, np.diff(data.episode, prepend=-1), strict=True):
            if start:
                writer.begin_episode()
            writer.add_frame(frame, np.zeros(1, np.uint8), ram)
    return path


def test_from_a_recording_to_a_measured_run_on_the_command_line(bouncing, tmp_path, capsys):
    data, run = str(bouncing), str(tmp_path / "run")
    assert main(["fit", "st-dim", "--data", data, "--out", run, "--steps", "2", "--batch-size", "16", "-q"]) == 0
    assert main(["eval", run]) == 0
    table = capsys.readouterr().out
    assert all(word in table for word in ("majority class", "untrained encoder", "trained encoder", "small objects", "agent"))
    assert main(["report", run]) == 0
    assert "ST-DIM on bounce.games" in (tmp_path / "run" / "report.html").read_text()
    assert main(["embed", run, "--data", data, "--out", str(tmp_path / "v.npy"), "--split", "test"]) == 0
    assert np.load(tmp_path / "v.npy").shape == (6 * 40, 64)
    np.savez(tmp_path / "other.npz", frames=np.zeros((9, 42, 40), np.uint8))
    assert main(["eval", run, "--data", str(tmp_path / "other.npz")]) == 2
    assert "this model expects 1 channels of 42 x 32" in capsys.readouterr().err


def test_frames_without_variables_have_their_geometry_measured(tmp_path, capsys):
    frames = make_bounce().read(np.arange(6 * 40))[:, 0].numpy()
    np.savez(tmp_path / "plain.npz", frames=frames, episode=np.arange(len(frames)) // 40)
    run = str(tmp_path / "run")
    assert main(["fit", "st-dim", "--data", str(tmp_path / "plain.npz"), "--out", run, "--steps", "1", "--batch-size", "8", "-q"]) == 0
    assert main(["eval", run]) == 0
    table = capsys.readouterr().out
    assert "nothing to predict" in table
    assert "uniformity" in table
    assert main(["record", "--help"]) == 0
    assert "nearfar record pong --frames 50000 --to pong.games" in capsys.readouterr().out


# frames in episodes


def test_pairs_and_splits_keep_to_episodes():
    data = make_bounce()
    splits = find_modality(load_method("st-dim").recipe_class.card.modality).build_inputs().load_splits(data, TrainConfig(seed=1))
    train, test = splits.train, splits.test
    assert not set(train.episode) & set(test.episode)
    assert len(set(test.episode)) == 16 == 2 * len(set(data.episode)) / 5
    for part in (train, test, data.subset([0, 1, 5, 6, 7, 39, 40])):
        t = part.pair_starts
        assert np.array_equal(part.ids[t + 1], part.ids[t] + 1)
        assert np.array_equal(part.episode[t + 1], part.episode[t])
    assert data.subset([0, 1, 5, 6, 7, 39, 40]).pair_starts.tolist() == [0, 2, 3]
    assert len(train.pair_starts) == 24 * 39
    again = (
        find_modality(load_method("st-dim").recipe_class.card.modality)
        .build_inputs()
        .load_splits(data, TrainConfig(seed=9), test_ids=splits.test_ids)
    )
    assert again.train.fingerprint == train.fingerprint


def test_probes_learn_and_are_asked_on_other_episodes_and_other_frames():
    pixels = torch.arange(24, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2).contiguous()
    pixels[12:] = pixels[:12]  # the last two episodes look like the first two
    pixels[23] = 99
    data = Frames(InMemoryImageStore(pixels), np.arange(24), episode=np.arange(24) // 6, values=np.arange(24)[:, None], variables=("x",))
    kept = [split_probe_episodes(data, RandomKey(seed)) for seed in range(12)]
    for teach, test in kept:
        assert not set(teach.episode) & set(test.episode)
        seen = {int(v) for v in teach.read(np.arange(len(teach)))[:, 0, 0, 0]}
        asked = test.read(np.arange(len(test)))[:, 0, 0, 0].tolist()
        assert not seen & set(asked)
        assert test.values is not None
        assert pixels[test.values[:, 0], 0, 0, 0].tolist() == asked
    assert {len(test) for _, test in kept} == {0, 1}  # every episode has a twin among those that teach, but for one frame


def test_own_frames_as_npz_and_as_folders_of_pictures(tmp_path):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (12, 42, 32), dtype=np.uint8)
    labels = np.stack([np.arange(12) % 3, np.arange(12) % 4], axis=1)
    np.savez(tmp_path / "a.npz", frames=frames, episode=[5] * 4 + [2] * 4 + [5] * 4, labels=labels, variables=["ball_x", "door"])
    data = load_all_frames(tmp_path / "a.npz")
    assert data.episode.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert data.variables == ("ball_x", "door")
    assert np.array_equal(data.values, labels)
    for i, frame in enumerate(frames):
        folder = tmp_path / "film" / f"take {i // 4 + 8}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(frame).save(folder / f"{i % 4 + 8}.png")  # 8, 9, 10, 11: not in the order of letters
    film = load_all_frames(tmp_path / "film")
    assert torch.equal(film.read(np.arange(12)), data.read(np.arange(12)))
    assert film.episode.tolist() == data.episode.tolist()
    Image.fromarray(frames[0][:40]).save(tmp_path / "film" / "take 8" / "12.png")
    with pytest.raises(UsageError, match=r"12\.png is 40 pixels high"):
        load_all_frames(tmp_path / "film")
    (tmp_path / "film" / "take 8" / "12.png").write_bytes(b"no picture")
    with pytest.raises(UsageError, match=r"12\.png"):
        load_all_frames(tmp_path / "film")


def test_what_is_wrong_with_a_file_of_frames_is_said(tmp_path):
    frames = np.zeros((3, 4, 4), np.uint8)
    cases = {
        "has no array 'frames'": {"x": frames},
        "3 frames but 2 labels": {"frames": frames, "episode": [0, 0]},
        "array 'labels', must be whole numbers of shape .*got float64": {"frames": frames, "labels": np.zeros((3, 2))},
        "2 columns in 'labels' and 1 different names": {"frames": frames, "labels": np.zeros((3, 2), int), "variables": ["a", "a"]},
    }
    for said, arrays in cases.items():
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(UsageError, match=said) as e:
            load_all_frames(tmp_path / "bad.npz")
        assert "bad.npz" in str(e.value)
    for spec, said in (("bounse", "Did you mean 'bounce'"), (tmp_path, "no sub-folders"), (3, "cannot read frames from a int")):
        with pytest.raises(UsageError, match=said):
            load_all_frames(spec)
    (tmp_path / "x.games").write_bytes(b"something else")
    with pytest.raises(UsageError, match="is not a recording of games"):
        load_all_frames(tmp_path / "x.games")
    with pytest.raises(UsageError, match="pairs of consecutive frames"):
        find_modality(load_method("st-dim").recipe_class.card.modality).build_inputs().load_splits(frames[:2], TrainConfig())


# what probes tell


def test_entropy_picks_the_variables_that_change():
    n = 1000
    values = np.stack([np.arange(n) % 2, np.zeros(n, int), (np.arange(n) < 50).astype(int), np.arange(n) % 7], axis=1)
    assert entropy(values[:, 0]) == pytest.approx(np.log(2))
    assert entropy(values[:, 3]) == pytest.approx(np.log(7), abs=1e-4)
    assert select_informative(values, ("coin", "still", "rare", "week")) == [0, 3]


def test_probes_are_not_asked_about_what_is_no_number():
    x, y = torch.randn(40, 3), np.arange(40)[:, None] % 2
    broken = x.clone()
    broken[7, 1] = torch.nan
    apart = np.arange(40) < 10
    for teach, asked in ((broken, x), (x, broken)):
        with pytest.raises(NearfarError, match="rows hold NaN or infinity"):
            evaluate_converged_probes(teach, y, asked, y, ("v",))
        with pytest.raises(NearfarError, match="1 of 40 rows hold NaN or infinity"):
            atari_probe.fit_atari_probes(teach, y, apart, asked, RandomKey(0))


def test_f1_of_probes_and_of_the_majority():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(400, 6, generator=g)
    values = np.stack(
        [(x[:, 0] > 0).long().numpy() + 2 * (x[:, 1] > 0).long().numpy(), (torch.rand(400, generator=g) < 0.3).long()], axis=1
    )
    told = evaluate_converged_probes(x[:300], values[:300], x[300:], values[300:], ("corner", "chance"))
    assert told.f1["corner"] > 0.9 > 0.75 > told.f1["chance"]
    assert told.converged
    most = evaluate_majority_baseline(values[:300], values[300:], ("corner", "chance"))
    truth = values[300:, 1]
    assert most.f1["chance"] == pytest.approx(f1_score(truth, np.zeros_like(truth), average="weighted", zero_division=0))
    assert most.accuracy["chance"] == pytest.approx((truth == 0).mean())
    unseen = evaluate_converged_probes(x[:300], values[:300], x[300:], values[300:] + 9, ("corner", "chance"))
    assert set(unseen.f1.values()) == {0.0}


def test_the_benchmarks_probes_are_those_of_torch():
    """Three probes side by side, against a linear layer, Adam and a plateau schedule of torch's own for each, stopped likewise."""
    g = torch.Generator().manual_seed(1)
    x, asked = torch.randn(200, 6, generator=g), torch.randn(50, 6, generator=g)
    y = np.stack([(x[:, 0] > 0).long(), (x[:, 1] * 2).round().long().clamp(-2, 2) + 5, torch.randint(0, 3, (200,), generator=g)], axis=1)
    apart, rng_key = np.arange(200) % 5 == 0, RandomKey(2)
    found = atari_probe.fit_atari_probes(x, y, apart, asked, rng_key)
    values = np.unique(y)
    target, train = torch.from_numpy(np.searchsorted(values, y)), torch.from_numpy(np.flatnonzero(~apart))
    start = atari_probe.AtariProbes(3, 6, len(values), x.device, rng_key)
    for v in range(3):
        layer = torch.nn.Linear(6, len(values))
        layer.weight.data, layer.bias.data = start.weight[v].T.contiguous(), start.bias[v].clone()
        adam = torch.optim.Adam(layer.parameters(), lr=5e-4, eps=1e-5)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(adam, mode="max", factor=0.2, patience=5, min_lr=1e-5)
        best, since = -1.0, 0
        for epoch in range(100):
            order = train[torch.from_numpy(rng_key("order", epoch).bits(np.arange(len(train))).astype(np.int64)[:, 0]).argsort(stable=True)]
            for start_at in range(0, len(order) - 63, 64):
                rows = order[start_at : start_at + 64]
                adam.zero_grad()
                torch.nn.functional.cross_entropy(layer(x[rows]), target[rows, v]).backward()
                adam.step()
            accuracy = float((layer(x[apart]).argmax(1) == target[apart, v]).float().mean())
            best, since = (accuracy, 0) if accuracy > best else (best, since + 1)
            if since >= 15:
                break
            plateau.step(accuracy)
        assert values[layer(asked).argmax(1).numpy()].tolist() == found[:, v].tolist()


def test_a_games_score_is_the_mean_over_categories():
    names = get_variable_bytes("pong")
    assert group_by_category(names) == {
        "small objects": ["ball_x", "ball_y"], "agent": ["player_y", "player_x"], "other objects": ["enemy_y", "enemy_x"],
        "score and clock": ["enemy_score", "player_score"],
    }  # fmt: skip
    assert len(get_variable_bytes("breakout")) == 35
    assert group_by_category(["block_bit_map_3", "door"]) == {"miscellaneous": ["block_bit_map_3"], "others": ["door"]}
    assert category_mean({"ball_x": 0.2, "ball_y": 0.4, "player_x": 0.9}) == pytest.approx(0.6)


def test_training_on_a_ball_that_bounces_pays():
    import nearfar
    from nearfar.api.evaluate import measure_model

    trained = nearfar.fit("st-dim", preset="tiny", steps=100)
    table = measure_model(trained).table
    for column, most in (("f1", 0.02), ("f1 converged", 0.3)):
        rows = {r["representation"]: r[column] for r in table.results}
        assert rows["trained encoder"] > rows["untrained encoder"] + 0.03 > rows["majority class"] + most
