"""Encoders that went home: each is loaded by the library it went to, and gives the run's own vectors."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import nearfar
from nearfar.cli.main import main
from nearfar.core import UsageError
from nearfar.export import TARGETS, export_encoder

TEXTS = ["A first text.", "And another one, which is a good deal longer than the first was", "", "Third: 3rd"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, nearfar.train.model.Trained]:
    """Runs of two steps, by what they encode with."""
    folder = tmp_path_factory.mktemp("runs")
    sentences = [f"Sentence {i} of the document speaks of the number {i * i}." for i in range(120)]
    (folder / "text.txt").write_text("\n".join(sentences))
    rows = zip(sentences[:40], sentences[40:80], sentences[80:], strict=True)
    (folder / "triples.csv").write_text("\n".join(["anchor,positive,negative", *map(",".join, rows)]))
    asked = [{"question": f"Which number has {i}?", "passage": text, "answer": str(i * i)} for i, text in enumerate(sentences)]
    (folder / "asked.jsonl").write_text("\n".join(map(json.dumps, asked)))
    text, triples, questions = folder / "text.txt", folder / "triples.csv", folder / "asked.jsonl"
    settings = {"preset": "tiny", "steps": 2, "batch_size": 16}
    return {
        "convnet": nearfar.fit("simclr", out=folder / "convnet", **settings),
        "sobel": nearfar.fit("deepcluster", **settings, encoder="convnet-gn"),
        "mean": nearfar.fit("simcse-unsup", text, out=folder / "mean", **settings),
        "cls": nearfar.fit("simcse-unsup", text, pooling="cls", **settings),
        "first-last": nearfar.fit("simcse-unsup", text, pooling="first-last", **settings),
        "dense": nearfar.fit("simcse-sup", triples, columns="anchor,positive,negative", encoder="bert-tiny", **settings),
        "gru": nearfar.fit("quick-thought", text, encoder="gru", **settings | {"batch_size": 4}),
        "towers": nearfar.fit("dpr", questions, encoder="bert-tiny", **settings),
        "reader": nearfar.fit("dpr-reader", questions, encoder="bert-tiny", **settings),
        "word": nearfar.fit("word2vec-skipgram-neg", text, **settings | {"batch_size": 4}),
        "mel": nearfar.fit("cpc-audio", encoder="mel-transformer", **settings),
        "wave": nearfar.fit("cpc-audio", encoder="wave", **settings),
        "frames": nearfar.fit("st-dim", **settings),
    }


def images(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, 1, 8, 8), dtype=np.uint8)


def inputs(run, n: int) -> np.ndarray:
    """What the exported graph takes, and what `encode` makes the same vectors of."""
    if run.recipe.card.modality == "image":
        return images(n)
    if run.recipe.card.modality == "words":
        return np.arange(n)
    if run.recipe.card.modality == "frames":
        return np.random.default_rng(n).integers(0, 256, (n, *(run.net.sizes[k] for k in ("channels", "height", "width"))), dtype=np.uint8)
    if run.recipe.card.modality == "audio":
        clips = np.random.default_rng(n).integers(-9000, 9000, (n, run.net.sizes["samples"]), dtype=np.int16)
        clips[-1, run.net.sizes["samples"] // 3 :] = 0  # a shorter one
        return clips
    return run.inputs.adapt(TEXTS[:n])[0].read(np.arange(n)).numpy()


def vectors(run, n: int) -> np.ndarray:
    if run.recipe.card.modality == "image":
        return run.encode(images(n)).numpy()
    if run.recipe.card.modality == "words":
        return run.net.encoder.weight[:n].detach().numpy()
    if run.recipe.card.modality in ("frames", "audio"):
        return run.encode(torch.from_numpy(inputs(run, n))).numpy()
    return run.encode(TEXTS[:n]).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["convnet", "mean", "gru", "mel", "wave", "frames"])
def test_onnx_runs_in_onnxruntime_with_any_batch(runs, name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    export_encoder(runs[name], "onnx", tmp_path / "out")
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    (taken,) = session.get_inputs()
    words = json.loads((tmp_path / "out" / "preprocessing.json").read_text())
    assert (taken.name, taken.shape) == (words["input"], words["shape"])
    for n in (1, 4):
        (found,) = session.run(None, {taken.name: inputs(runs[name], n)})
        assert np.allclose(found, vectors(runs[name], n), atol=2e-6)
    parts = {parameter.split(".")[1] for parameter in onnx_weights(tmp_path / "out" / "model.onnx")}
    assert "head" not in parts, "what only training needs stays behind"


def onnx_weights(path: Path) -> list[str]:
    import onnx

    return [tensor.name for tensor in onnx.load(path).graph.initializer if tensor.name.startswith("net.")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["convnet", "sobel", "first-last", "dense", "word", "mel", "wave", "frames"])
def test_torch_loads_the_program_without_nearfar_and_without_pickle(runs, name, tmp_path):
    export_encoder(runs[name], "torch", tmp_path / "out")
    program = tmp_path / "out" / "model.pt2"
    with zipfile.ZipFile(program) as archive:
        for entry in archive.infolist():
            assert b"ctorch" not in (content := archive.read(entry)), "a pickle of tensors names torch"
            assert not content.startswith(b"\x80\x02"), "a pickle begins so"
    encode = load_program(program)
    for n in (1, 4):
        assert np.allclose(encode(torch.from_numpy(inputs(runs[name], n))).numpy(), vectors(runs[name], n), atol=1e-6)
    assert "model.pt2" in (tmp_path / "out" / "README.md").read_text()


def test_a_recurrent_program_takes_any_number_of_tokens(runs, tmp_path):
    export_encoder(runs["gru"], "torch", tmp_path / "out")
    encode = load_program(tmp_path / "out" / "model.pt2")
    words = json.loads((tmp_path / "out" / "preprocessing.json").read_text())
    shortest, longest = words["t"]
    for n, t in ((1, shortest), (4, shortest + 2), (2, longest)):
        ids = torch.arange(5, 5 + n * t).view(n, t)
        ids[0, 2:] = words["pad_on_the_right_with"]
        with torch.no_grad():
            wanted = torch.cat([runs["gru"].net.encoder(ids), runs["gru"].net.context(ids)], 1)
        assert torch.allclose(encode(ids), wanted, atol=1e-6)
    assert torch.allclose(encode(torch.from_numpy(inputs(runs["gru"], 4))), runs["gru"].encode(TEXTS), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["onnx", "torch"])
def test_questions_and_passages_go_home_in_a_file_each(runs, to, tmp_path):
    run, ids = runs["towers"], inputs(runs["towers"], 4)
    out = export_encoder(run, to, tmp_path / "out")
    words, ending = json.loads((out / "preprocessing.json").read_text()), {"onnx": "onnx", "torch": "pt2"}[to]
    assert list(words) == ["question", "passage"]
    assert {path.name for path in out.glob(f"*.{ending}")} == {f"question.{ending}", f"passage.{ending}"}
    for tower in words:
        if to == "onnx":
            onnxruntime = pytest.importorskip("onnxruntime")
            found = onnxruntime.InferenceSession(out / f"{tower}.onnx").run(None, {words[tower]["input"]: ids})[0]
            assert {weight.split(".")[1] for weight in onnx_weights(out / f"{tower}.onnx")} == {tower}, "the other stays out of it"
        else:
            found = load_program(out / f"{tower}.pt2")(torch.from_numpy(ids)).numpy()
        assert np.allclose(found, run.encode(TEXTS, tower=tower).numpy(), atol=2e-6)
        assert f"{tower}.{ending}" in (out / "README.md").read_text()
    assert not torch.allclose(run.encode(TEXTS, tower="question"), run.encode(TEXTS, tower="passage"), atol=1e-2), "they differ"


@pytest.mark.parametrize("to", ["sentence-transformers", "transformers"])
def test_questions_and_passages_go_home_in_a_folder_each(runs, to, tmp_path):
    run, out = runs["towers"], export_encoder(runs["towers"], to, tmp_path / "out")
    assert {path.name for path in out.iterdir()} == {"README.md", "question", "passage"}
    for tower in ("question", "passage"):
        found = (sentence_vectors if to == "sentence-transformers" else first_states)(out / tower)
        assert np.allclose(found, run.encode(TEXTS, tower=tower).numpy(), atol=2e-6)
        assert f"`{tower}`" in (out / "README.md").read_text()
        assert f"An encoder of {tower}s" in (out / tower / "README.md").read_text()


def sentence_vectors(folder: Path) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = pytest.importorskip("sentence_transformers")
        return library.SentenceTransformer(str(folder), device="cpu", local_files_only=True).encode(TEXTS)


def first_states(folder: Path) -> np.ndarray:
    import transformers

    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True, add_pooling_layer=False).eval()
    batch = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        return model(**batch).last_hidden_state[:, 0].numpy()


def load_program(path: Path) -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.load(path).module()


@pytest.mark.slow
def test_the_program_needs_torch_alone(runs, tmp_path):
    """The README's own lines, in a process that cannot import nearfar."""
    export_encoder(runs["convnet"], "torch", tmp_path / "out")
    np.save(tmp_path / "images.npy", images(4))
    lines = (tmp_path / "out" / "README.md").read_text().split("```python\n")[1].split("```")[0]
    code = (
        "import sys; sys.modules['nearfar'] = None\nimport numpy, torch\nimages = torch.from_numpy(numpy.load('../images.npy'))\n"
        f"{lines}\nnumpy.save('../vectors.npy', vectors.detach().numpy())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "out", capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert np.allclose(np.load(tmp_path / "vectors.npy"), vectors(runs["convnet"], 4), atol=1e-6)


@pytest.mark.parametrize("name", ["mean", "cls", "dense"])
def test_sentence_transformers_loads_it(runs, name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = pytest.importorskip("sentence_transformers")
        export_encoder(runs[name], "sentence-transformers", tmp_path / "out")
        model = library.SentenceTransformer(str(tmp_path / "out"), device="cpu", local_files_only=True)
        found = model.encode(TEXTS)
    assert np.allclose(found, runs[name].encode(TEXTS).numpy(), atol=2e-6)
    assert model.max_seq_length == runs[name].net.sizes["max_length"]


def test_transformers_loads_text_models(runs, tmp_path):
    import transformers

    export_encoder(runs["mean"], "transformers", tmp_path / "out")
    model = transformers.AutoModel.from_pretrained(tmp_path / "out", local_files_only=True, add_pooling_layer=False).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    batch = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    mask = batch["attention_mask"][..., None]
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    assert torch.allclose((states * mask).sum(1) / mask.sum(1), runs["mean"].encode(TEXTS), atol=2e-6)


def test_transformers_loads_image_models(tmp_path):
    import transformers

    config = transformers.ResNetConfig(num_channels=3, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    transformers.ResNetModel(config).save_pretrained(tmp_path / "resnet")
    run = nearfar.fit("simclr", preset="tiny", steps=2, batch_size=16, encoder=f"hf:{tmp_path / 'resnet'}")
    export_encoder(run, "transformers", tmp_path / "out")
    lines = (tmp_path / "out" / "README.md").read_text().split("```python\n")[1].split("```")[0]
    known: dict = {"images": torch.from_numpy(images(4))}
    exec(lines.replace('"."', repr(str(tmp_path / "out"))), known)
    assert torch.allclose(known["vectors"], run.encode(images(4)), atol=2e-6)


@pytest.mark.parametrize(
    ("name", "to", "why"),
    [
        ("convnet", "transformers", "convnet is not a model of transformers"),
        ("gru", "sentence-transformers", "gru is not a text model"),
        ("dense", "transformers", "a layer after the encoder"),
        ("first-last", "sentence-transformers", "no pooling over the first and last layers"),
        *(("reader", to, "marks answers in passages and has no vectors") for to in TARGETS),
        ("convnet", "onxx", "Did you mean 'onnx'"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_line(runs, name, to, why, tmp_path):
    with pytest.raises(UsageError, match=why) as refused:
        export_encoder(runs[name], to, tmp_path / "out")
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir()), "nothing is left of it"


def test_the_command_writes_a_new_folder_only(runs, tmp_path, capsys):
    run, out = str(runs["mean"].run_folder.path), tmp_path / "out"
    assert main(["export", run, "--to", "sentence-transformers", "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert main(["export", run, "--to", "torch", "--out", str(out)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["export", run, "--to", "torch", "--out", str(tmp_path / "no" / "out")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert set(TARGETS) == {"onnx", "torch", "transformers", "sentence-transformers"}
