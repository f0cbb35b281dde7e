"""Sounds, and pictures with text, over HTTP: uploaded, found, shown and played; a real process each."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave

import numpy as np
import pytest
import torch
from PIL import Image
from serving import png, serving, until, upload

import nearfar
from nearfar.api.diagnose import diagnose
from nearfar.api.search import index_data
from nearfar.data.audio.readers import resample
from nearfar.data.samples.tones import make_tones
from nearfar.index import open_index
from nearfar.train.encode import encode_all

pytest.importorskip("fastapi", reason="the extra serve is not installed")
from nearfar.server.collection import RunCollection
from nearfar.server.neighbors import SearchRequest
from nearfar.server.requests import ParsedRequest
from nearfar.server.service import Service

soundfile = pytest.importorskip("soundfile", reason="the extra audio is not installed")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    """A run on sounds, twelve files, and a server of their index."""
    folder = tmp_path_factory.mktemp("sounds")
    trained = nearfar.fit("nandan-vepa", preset="tiny", out=folder / "run", steps=2, batch_size=16)
    (folder / "files").mkdir()
    clips = make_tones()
    for i in range(12):
        wave_, name = clips.read(np.array([37 * i]))[0].numpy(), folder / "files" / f"{i:02}.wav"
        soundfile.write(name, wave_, clips.sample_rate, subtype="PCM_16")
    index_data(folder / "run", folder / "files", folder / "index")
    with serving(folder / "index", "--map", "pca", token=None) as server:
        yield folder, trained, server


def loud(samples: np.ndarray, rate: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV")
    return file.getvalue()


def test_a_sound_is_embedded_as_the_run_does_and_finds_itself(heard):
    folder, trained, server = heard
    path = folder / "files" / "05.wav"
    body, kind = upload([path.read_bytes()], "sounds", k="3")
    status, found = server.ask("POST", "/search", body, token=None, content_type=kind)
    (hits,) = json.loads(found)["hits"]
    assert (status, hits[0]["name"], len(hits)) == (200, "05.wav", 3)
    assert hits[0]["score"] == pytest.approx(1, abs=1e-4)
    assert hits[0]["score"] > hits[1]["score"]
    encoded = base64.b64encode(path.read_bytes()).decode()
    status, embedded = server.json("POST", "/embed", {"sounds": [encoded]}, token=None)
    assert status == 200
    np.testing.assert_allclose(embedded["vectors"], trained.encode([path]).numpy(), rtol=1e-4, atol=1e-5)


def test_a_stereo_sound_of_another_rate_is_brought_to_the_runs(heard):
    folder, _, server = heard
    samples, rate = soundfile.read(folder / "files" / "02.wav", dtype="float32")
    fast = resample(samples, rate, 2 * rate)
    body, kind = upload([loud(np.stack([fast, fast], 1), 2 * rate)], "sounds", k="1")
    _, found = server.ask("POST", "/search", body, token=None, content_type=kind)
    assert json.loads(found)["hits"][0][0]["name"] == "02.wav"


def test_the_explorer_plays_a_sound_and_draws_it(heard):
    folder, _, server = heard
    about = server.json("GET", "/explorer/about", token=None)[1]
    assert (about["modality"], about["takes"]) == ("audio", ["sounds"])
    status, played = server.ask("GET", "/explorer/sound/7", token=None)
    samples, rate = soundfile.read(folder / "files" / "07.wav", dtype="int16")
    with wave.open(io.BytesIO(played)) as file:
        assert (status, file.getframerate(), file.getnchannels()) == (200, rate, 1)
        assert file.readframes(file.getnframes()) == samples.astype("<i2").tobytes()
    status, drawn = server.ask("GET", "/explorer/picture/7", token=None)
    with Image.open(io.BytesIO(drawn)) as picture:
        assert (status, picture.format) == (200, "PNG")
        assert np.ptp(np.asarray(picture)) > 100


def test_sounds_that_are_none_are_refused_in_a_sentence(heard):
    folder, _, server = heard
    refused = {
        "sound 0 cannot be decoded": upload([b"RIFF and nothing else"], "sounds"),
        "sound 0 has no sound in it": upload([loud(np.zeros(0), 8000)], "sounds"),
        "this model cannot embed images: it takes sounds, vectors and rows": upload([png(np.zeros((8, 8), np.uint8))]),
    }
    for said, (body, kind) in refused.items():
        status, answer = server.ask("POST", "/embed", body, token=None, content_type=kind)
        assert (status, json.loads(answer)) == (422, {"error": said})
        assert str(folder).encode() not in answer
    status, answer = server.ask("POST", "/embed", upload([loud(np.zeros(8000 * 601), 8000)], "sounds")[0], token=None, content_type=kind)
    assert (status, "601 seconds long" in answer.decode()) == (413, True)


@pytest.fixture(scope="module")
def pictured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    trained = nearfar.fit("clip", preset="tiny", out=folder / "run", steps=60, seed=0)
    return folder / "run", trained


@pytest.fixture(scope="module")
def seen(pictured):
    with serving(pictured[0], "--map", "pca", token=None) as server:
        yield server


def test_words_find_pictures_and_pictures_find_pictures(pictured, seen):
    _, trained = pictured
    asked = ["the digit three", "somebody wrote the number zero"]
    _, found = seen.json("POST", "/search", {"texts": asked, "k": 10}, token=None)
    for hits, label in zip(found["hits"], ("three", "zero"), strict=True):
        assert sum(hit["label"] == label for hit in hits) >= 8
    _, embedded = seen.json("POST", "/embed", {"texts": asked}, token=None)
    torch.testing.assert_close(torch.tensor(embedded["vectors"]), trained.encode(asked), rtol=1e-4, atol=1e-5)
    _, shown = seen.ask("GET", "/explorer/picture/17", token=None)
    body, kind = upload([shown], k="1")
    assert json.loads(seen.ask("POST", "/search", body, token=None, content_type=kind)[1])["hits"][0][0]["row"] == 17


def test_a_text_that_names_a_file_of_the_host_is_a_text(pictured, seen, tmp_path):
    file = tmp_path / "secret.png"
    file.write_bytes(png(np.zeros((8, 8), np.uint8)))
    status, found = seen.json("POST", "/embed", {"texts": [str(file)]}, token=None)
    assert status == 200
    picture = pictured[1].encode([file])
    assert float(torch.tensor(found["vectors"]) @ picture[0]) < 0.99


def test_the_explorer_shows_pairs_of_pictures_and_words_and_says_what_is_wrong(seen):
    about = seen.json("GET", "/explorer/about", token=None)[1]
    assert (about["modality"], about["takes"]) == ("image-text", ["texts", "images"])
    pairs = until_ready(seen, "/explorer/views")
    assert all(pair[0]["picture"].startswith("data:image/png") for pair in pairs)
    assert all("digit" in pair[1]["text"] or pair[1]["text"].split() for pair in pairs)
    assert until_ready(seen, "/explorer/findings") == []


def until_ready(server, path: str) -> list:
    """The answer of a path that takes a while."""
    return until(lambda: (found := server.json("GET", path, token=None))[0] == 200 and (found[1],))[0]


def test_a_healthy_run_on_captions_is_looked_at_and_has_no_finding(pictured):
    found = diagnose(pictured[1])
    assert found.findings == []
    assert {"spread", "rank_share", "negatives_in_use", "meeting_twin", "leaked", "mean_cosine"} <= found.symptoms.keys()


def test_an_index_of_pictures_is_searched_with_words_on_the_command_line(pictured, tmp_path, capsys):
    from nearfar.cli.main import main

    run, trained = pictured
    index_data(run, "digits-captions", tmp_path / "index")
    assert main(["search", str(tmp_path / "index"), "a handwritten seven", "--k", "5", "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)["hits"]
    assert [hit["label"] for hit in hits].count("seven") >= 4
    assert main(["search", str(tmp_path / "index"), "text:seven.png", "--k", "1", "--json", "--html", str(tmp_path / "found.html")]) == 0
    assert json.loads(capsys.readouterr().out)["query"] == "seven.png"
    assert "data:image/png;base64," in (tmp_path / "found.html").read_text()
    own = open_index(tmp_path / "index").search(trained.encode(["seven"]).numpy(), 1)
    assert own.rows.shape == (1, 1)


def test_questions_are_encoded_as_questions_and_passages_as_passages(tmp_path):
    run = nearfar.fit("dpr", preset="tiny", out=tmp_path / "run", steps=2, batch_size=8)
    service = Service(RunCollection(run))
    asked, text = ParsedRequest("texts", ["What does the function return?"], k=5), ["What does the function return?"]
    try:
        found, passage = asyncio.run(service.search(asked)), asyncio.run(service.embed(asked))
    finally:
        service.worker.stop()
    np.testing.assert_allclose(passage, run.encode(text).numpy(), atol=1e-5)
    question = encode_all(run.recipe, run.net, run.inputs.adapt(text)[0], run.device, tower="question")
    own = service.collection.search([SearchRequest(question.numpy(), 5)])[0]
    assert found.rows.tolist() == own.rows.tolist()
    np.testing.assert_allclose(found.scores, own.scores, atol=1e-5)
