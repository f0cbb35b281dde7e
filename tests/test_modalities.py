"""Contract of modalities: each one opens, encodes, evaluates, shows, queries and exports samples."""

from __future__ import annotations

import ast
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import nearfar
from nearfar.api.choose import recognize_modality
from nearfar.api.evaluate import measure_model
from nearfar.core import UsageError
from nearfar.core.modality import MODALITY_SETTINGS, Evaluation, Modality
from nearfar.evaluate.related_pairs import related_pair_auc
from nearfar.modalities import find_modality, list_modalities
from nearfar.recipes import list_methods, load_method
from nearfar.train.model import Model
from nearfar.train.model_data import load_model_splits

PACKAGE = Path(nearfar.__file__).parent
METHOD = {"text": "simcse-unsup", "image": "simclr", "audio": "nandan-vepa"}
"""Methods that stand for their modality. Other modalities take their first one."""
SMALL = {"preset": "tiny", "steps": 2, "seed": 1}
WHOLE_GRAPHS = ("nodes",)
"""Modalities whose batch is one graph."""
NAMED_ROWS = ("words", "walks", "triples")
"""Modalities whose queries are names."""

every_modality = pytest.mark.parametrize("name", list_modalities())


@cache
def trained(name: str) -> Model:
    method = METHOD.get(name) or next(m for m in list_methods() if load_method(m).recipe_class.card.modality == name)
    if name == "text":
        return nearfar.fit(method, data=str(write_texts()), batch_size=8, vocab_size=300, max_length=8, **SMALL)
    return nearfar.fit(method, **SMALL, **({} if name in WHOLE_GRAPHS else {"batch_size": 8}))


@cache
def evaluated(name: str) -> Evaluation:
    return measure_model(trained(name))


@cache
def write_texts() -> Path:
    path = Path(tempfile.mkdtemp()) / "texts.csv"
    path.write_text("text,label\n" + "".join(f"a {word} number {i},{word}\n" for i in range(30) for word in ("cat", "dog")))
    return path


@every_modality
def test_a_modality_is_named_like_its_file(name):
    modality = find_modality(name)
    assert modality.name == name
    assert type(modality).__module__ == f"nearfar.modalities.{name.replace('-', '_')}"
    assert set(modality.settings) <= set(MODALITY_SETTINGS)


@every_modality
def test_literals_can_be_read_without_an_import(name):
    tree = ast.parse((PACKAGE / "modalities" / f"{name.replace('-', '_')}.py").read_text())
    bodies = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
    literals = {
        n.targets[0].id: n.value for body in bodies for n in body if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
    }
    assert ast.literal_eval(literals["name"]) == name
    if "settings" in literals:
        assert ast.literal_eval(literals["settings"]) == find_modality(name).settings


def test_an_unknown_modality_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match=r"unsupported modality 'imag'. Did you mean 'image'"):
        find_modality("imag")


@every_modality
def test_default_candidates_are_methods_of_the_modality(name):
    for method in find_modality(name).candidates:
        assert load_method(method).recipe_class.card.modality == name


@every_modality
def test_bundled_datasets_are_recognized(name):
    modality = find_modality(name)
    assert all(modality.recognizes(dataset) for dataset in modality.bundled)
    if modality.candidates:
        assert all(recognize_modality(dataset).name == name for dataset in modality.bundled)


@every_modality
def test_samples_are_drawn_and_encoded(name):
    model = trained(name)
    assert model.modality is find_modality(name)
    train = load_model_splits(model).train
    drawn = model.modality.draw_samples(train, 5, nearfar.RandomKey(0))
    vectors = model.encode(drawn)
    assert vectors.shape[0] == min(5, len(train))
    assert vectors.isfinite().all()


@every_modality
def test_an_evaluation_names_trained_and_untrained_rows(name):
    found = evaluated(name)
    rows = found.table.results
    assert any(not row["baseline"] for row in rows)
    assert any(row["baseline"] for row in rows)
    assert len(found.test_features) == len(found.untrained_features)


@every_modality
def test_samples_are_shown_in_a_report(name):
    model = trained(name)
    data = evaluated(name).train_samples
    assert model.modality.summarize_data(load_model_splits(model).train)[0].isalnum()
    shown = model.modality.build_sample_renderer(data)(torch.arange(2))
    assert len(shown) == 2


@every_modality
def test_media_are_files_of_the_promised_kinds(name):
    model = trained(name)
    (part, *_) = model.inputs.load_all(model.config.data, model.config)
    picture, sound = model.modality.encode_sample_png(part, 0), model.modality.encode_sample_wav(part, 0)
    assert (picture is not None and picture.startswith(b"\x89PNG")) == model.modality.media.picture
    assert (sound is not None and sound.startswith(b"RIFF")) == model.modality.media.sound
    assert model.modality.encode_file_png("no-such-file") is None
    assert model.modality.encode_file_wav("no-such-file") is None


@every_modality
def test_a_query_is_encoded_or_refused_plainly(name):
    model = trained(name)
    text = load_model_splits(model).train.name(0) if name in NAMED_ROWS else "some text"
    if "texts" in model.modality.input_types or name in NAMED_ROWS:
        assert len(model.encode(model.modality.parse_query(model, text))) == 1
        return
    with pytest.raises(UsageError, match="there is no file 'some text': this index is searched with"):
        model.modality.parse_query(model, text)


@every_modality
def test_exported_signatures_describe_the_encoders(name):
    model = trained(name)
    if type(model.modality).build_signatures is Modality.build_signatures:
        with pytest.raises(UsageError, match="cannot be exported"):
            model.modality.build_signatures(model)
        return
    for signature in model.modality.build_signatures(model).values():
        vectors = model.recipe.encode(model.net, signature.example, signature.tower)
        assert len(vectors) == len(signature.example)


@every_modality
def test_a_diagnosis_is_made_of_every_modality(name):
    found = nearfar.diagnose(trained(name))
    assert found.render()
    assert "not examined" not in found.render()


@every_modality
def test_a_ranking_measure_has_a_score(name):
    model = trained(name)
    if not model.modality.ranking_measure:
        with pytest.raises(NotImplementedError, match="ranking_measure"):
            model.modality.score_without_labels(model, load_model_splits(model), nearfar.RandomKey(0))
        return
    score = model.modality.score_without_labels(model, load_model_splits(model), nearfar.RandomKey(0))
    assert 0 <= score <= 1


def test_related_pairs_are_ranked_as_by_a_loop():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(30, 4)))
    pairs = np.array([[i, (i + 1) % 30] for i in range(30)])
    key = nearfar.RandomKey(3)
    random = [[int(key("random", side).integers(np.arange(30), 30)[i]) for side in (0, 1)] for i in range(30)]
    cosine = lambda a, b: float(torch.cosine_similarity(x[a], x[b], dim=0))
    near, far = [cosine(*p) for p in pairs], [cosine(*p) for p in random]
    naive = np.mean([(a > b) + (a == b) / 2 for a in near for b in far])
    assert related_pair_auc(x, pairs, key) == pytest.approx(naive, abs=1e-9)
    same = torch.ones(30, 4, dtype=torch.float64)
    assert related_pair_auc(same, pairs, key) == 0.5


def names_a_modality(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(part, ast.Constant) and part.value in names for part in ast.walk(node))


def comparisons_with_modalities(source: str, names: set[str]) -> list[int]:
    """Return the lines that compare a modality with a name, or look something up by a modality."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and "modality" in ast.unparse(node) and names_a_modality(node, names):
            found.append(node.lineno)
        if isinstance(node, ast.Match) and "modality" in ast.unparse(node.subject):
            found.append(node.lineno)
        if isinstance(node, ast.Subscript) and "modality" in ast.unparse(node.slice) and not isinstance(node.slice, ast.Constant):
            found.append(node.lineno)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            first = node.args[:1]
            found += [node.lineno for word in first if "modality" in ast.unparse(word) and not isinstance(word, ast.Constant)]
    return found


def test_no_file_outside_modalities_compares_their_names():
    names, against = set(list_modalities()), []
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name != "modalities":
            lines = comparisons_with_modalities(path.read_text(), names)
            against += [f"{path.relative_to(PACKAGE)}:{line}" for line in lines]
    assert not against, against


@pytest.mark.parametrize(
    "line", ['model.modality.name == "image"', "TABLE[card.modality]", "TABLE.get(card.modality)", 'modality in ("text", "words")']
)
def test_the_search_notices_comparisons(line):
    assert comparisons_with_modalities(line, {"image", "text", "words"}) == [1]


def test_every_modality_is_a_modality():
    assert all(isinstance(find_modality(name), Modality) for name in list_modalities())
    assert len(list_modalities()) >= 10
