"""scikit-learn's own contract, and what the learned features are worth in its own tools."""

from __future__ import annotations

import warnings

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import nearfar
from nearfar.recipes.table.scarf import SCARF
from nearfar.recipes.vision.simclr import SimCLR
from nearfar.sklearn import Embedder


@pytest.mark.slow
def test_every_check_of_scikit_learn_passes():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # skips are looked at below, by name
        found = check_estimator(Embedder(steps=10), on_fail=None)
    assert len(found) > 40
    assert [(c["check_name"], c["exception"]) for c in found if c["status"] not in ("passed", "skipped")] == []
    skipped = {c["check_name"] for c in found if c["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}, "which needs an environment variable before scipy is imported"


@pytest.mark.slow
def test_features_are_better_than_those_of_an_untrained_net():
    X, y = load_digits(return_X_y=True)
    parts = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
    scores = {}
    for name, embedder in {"untrained": Embedder(steps=1, lr=1e-9), "trained": Embedder(steps=400)}.items():
        model = make_pipeline(embedder, StandardScaler(), LogisticRegression(max_iter=2000))
        scores[name] = model.fit(parts[0], parts[2]).score(parts[1], parts[3])
    assert scores["trained"] > scores["untrained"] + 0.02
    assert scores["trained"] > 0.94


def test_the_same_state_gives_the_same_features_and_another_gives_others():
    X, _ = load_wine(return_X_y=True)
    first, again, other = (Embedder(steps=20, random_state=s).fit_transform(X) for s in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)
    drawn = Embedder(steps=2, random_state=np.random.RandomState(0)).fit_transform(X)
    assert np.isfinite(drawn).all()


def test_clone_search_pickle_and_names(tmp_path):
    X, y = load_wine(return_X_y=True)
    search = GridSearchCV(make_pipeline(Embedder(steps=5), LogisticRegression()), {"embedder__corruption": [0.2, 0.9]}, cv=2).fit(X, y)
    embedder = search.best_estimator_[0]
    assert clone(embedder).get_params() == embedder.get_params()
    joblib.dump(search.best_estimator_, tmp_path / "model.joblib")
    back = joblib.load(tmp_path / "model.joblib")
    assert np.array_equal(back.predict_proba(X), search.predict_proba(X))
    assert list(embedder.get_feature_names_out()) == [f"embedder{i}" for i in range(256)]
    assert embedder.set_output(transform="pandas").transform(X).shape == (len(X), 256)


@pytest.mark.parametrize("recipe", ["simclr", "supcon"])
def test_images_by_their_shape(recipe):
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    embedder = Embedder(recipe, shape=(8, 8), steps=4, batch_size=32, settings={"encoder": "convnet-gn"}).fit(X, y)
    features = embedder.transform(X)
    assert features.shape == (300, len(embedder.get_feature_names_out())) == (300, 128)
    assert np.allclose(embedder.transform(X[5:9]), features[5:9], atol=1e-6)
    brighter = embedder.transform(X * 100)
    assert np.isfinite(brighter).all(), "values out of the training's range are cut off"


def test_what_a_recipe_for_images_has_reaches_it():
    X, _ = load_digits(return_X_y=True)
    settings = {"shape": (8, 8), "steps": 3, "batch_size": 32}
    plain = Embedder(**settings).fit(X[:100])
    warm, narrow = (Embedder(**settings, **given).fit(X[:100]) for given in ({"temperature": np.float64(0.05)}, {"dim": np.int64(16)}))
    assert (plain.recipe_.temperature, plain.recipe_.dim) == (0.5, 128), "what is not given is the recipe's own"
    assert (warm.recipe_.temperature, narrow.recipe_.dim) == (0.05, 16)
    assert not np.allclose(plain.transform(X[:9]), warm.transform(X[:9])), "a search over the temperature compares different models"
    assert len(narrow.get_feature_names_out()) == 128, "features are the encoder's"
    assert Embedder(SimCLR(temperature=0.2), **settings, dim=8).fit(X[:100]).recipe_ == SimCLR(temperature=0.2, dim=8)


def test_settings_reach_the_images_and_the_encoder(tmp_path):
    X, _ = load_digits(return_X_y=True)
    wide = Embedder(shape=(4, 16), steps=1, settings={"image_size": 4}).fit(X[:40])
    other = X[:9].reshape(9, 4, 16).copy()
    other[:, :, :5] = 7
    assert np.array_equal(wide.transform(other.reshape(9, 64)), wide.transform(X[:9])), "a square out of the middle is seen"
    other[:, :, 7] += 7
    assert not np.allclose(wide.transform(other.reshape(9, 64)), wide.transform(X[:9]))
    donor = nearfar.fit("simclr", "digits", steps=1, batch_size=16, encoder="convnet-gn", out=tmp_path / "run")
    begun = Embedder(shape=(8, 8), steps=1, lr=1e-12, settings={"init_from": str(tmp_path / "run")}).fit(X[:40])
    for mine, theirs in zip(begun.net_.encoder.parameters(), donor.net.encoder.parameters(), strict=True):
        assert np.allclose(mine, theirs.detach(), atol=1e-6)


def test_rows_use_scarf_with_its_defaults():
    X, _ = load_wine(return_X_y=True)
    assert Embedder(steps=1).fit(X).recipe_ == Embedder("scarf", steps=1).fit(X).recipe_ == SCARF()
    given = Embedder(steps=1, dim=5, corruption=0.3, temperature=0.7, settings={"encoder": "mlp-2x9"}).fit(X)
    assert given.recipe_ == SCARF(dim=5, corruption=0.3, temperature=0.7)
    assert given.transform(X[:4]).shape == (4, len(given.get_feature_names_out())) == (4, 9)


def test_rows_are_encoded_as_by_a_model_of_the_table():
    X, _ = load_wine(return_X_y=True)
    settings = {"steps": 5, "batch_size": 64, "lr": 2e-3, "encoder": "mlp-2x16"}
    model = nearfar.fit("scarf", X, seed=3, **settings)
    train = np.setdiff1d(np.arange(len(X)), model.test_ids)
    embedder = Embedder(steps=5, batch_size=64, random_state=3, settings={"encoder": "mlp-2x16"}).fit(X[train])
    assert np.allclose(embedder.transform(X), model.encode(X).numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "y", "why"),
    [
        ({"shape": (8, 9)}, None, "has 72 pixels, X has 64"),
        ({"shape": (8, 8), "recipe": "supcon"}, None, "learns from labels"),
        ({"shape": (8, 8), "recipe": "simcse-unsup"}, None, "is for texts, not for images: use recipe='simclr'$"),
        ({"recipe": "byol"}, None, "is for images, not for rows of numbers: use recipe='scarf', or give the shape= of the images"),
        ({"recipe": "simclr"}, None, "is for images, not for rows of numbers: use recipe='scarf'"),
        ({"shape": (8, 8), "recipe": "scarf"}, None, "is for rows of numbers, not for images: use recipe='simclr', or leave shape= out"),
        ({"recipe": "infograph"}, None, "not for rows of numbers: use recipe='scarf'$"),
        ({"settings": {"image_size": 8}}, None, "'image_size': …} has no effect: X holds rows of numbers"),
        ({"settings": {"columns": "x1"}}, None, "'columns': …} has no effect: X is in memory"),
        (
            {"shape": (8, 8), "recipe": "byol", "temperature": 0.1},
            None,
            "temperature= does not apply: 'byol' has no such hyperparameter. It has dim, hidden_dim",
        ),
        ({"shape": (8, 8), "corruption": 0.1}, None, "corruption= does not apply: 'simclr'"),
        ({"shape": (8, 8), "temperature": 0.1, "settings": {"temperature": 0.2}}, None, "temperature is given twice"),
        ({"shape": (8, 8), "settings": {"device": "cuda"}}, None, "'device': …} has no effect: give it as device="),
        ({"shape": (8, 8), "settings": {"data": "digits"}}, None, "'data': …} has no effect"),
        ({"shape": (8, 8), "settings": {"save_every": 5}}, None, "'save_every': …} has no effect"),
    ],
)
def test_mistakes(settings, y, why):
    X, _ = load_digits(return_X_y=True)
    with pytest.raises(ValueError, match=why):
        Embedder(steps=1, **settings).fit(X[:20], y)
