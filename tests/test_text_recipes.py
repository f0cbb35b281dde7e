"""Language recipes: what they learn, and the whole way from texts to report."""

from __future__ import annotations

import itertools
import math
import shutil

import numpy as np
import pytest
import torch
from helpers import opened_for, tiny_session
from torch.nn import functional as F

import nearfar
from nearfar import recipes
from nearfar.api.embed import embed
from nearfar.api.evaluate import evaluate_model
from nearfar.api.report import write_model_report
from nearfar.cli.main import main
from nearfar.core import RandomKey, Rows, TrainConfig, UsageError
from nearfar.data import load_texts
from nearfar.similarity.sentences import ConsecutiveSentences, DropoutViews, MaskedTokens, TextColumns
from nearfar.train.training_loop import train

TINY = {"vocab_size": 600, "max_length": 16, "batch_size": 32}


def rows(*ids: int) -> Rows:
    chosen = np.array(ids)
    return Rows(chosen, chosen + 100, chosen)


@pytest.fixture(scope="module")
def docs():
    recipe, config = recipes.load_method("simcse-unsup").tiny
    return opened_for(type(recipe), config).train


def test_dropout_makes_the_two_views(docs):
    views = DropoutViews().view(DropoutViews().read(docs, rows(3, 1), RandomKey(0)), rows(3, 1), RandomKey(0))
    assert views["v0"] is views["v1"]
    assert torch.equal(views["v0"], docs.read([3, 1]))


def test_quick_thought_represents_a_sentence_by_both_encoders(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(f"sentence number {i} follows the one before it." for i in range(60)))
    trained = nearfar.fit("quick-thought", tmp_path / "text.txt", encoder="gru", vocab_size=300, max_length=16, steps=2, batch_size=4)
    texts = ["one sentence", "and another"]
    ids = trained.inputs.adapt(texts)[0].read(np.arange(2))
    with torch.no_grad():
        both = [trained.net.encoder(ids), trained.net.context(ids)]
    assert not torch.allclose(*both)
    assert torch.equal(trained.encode(texts), torch.cat(both, 1))
    assert torch.equal(trained.encode(texts, tower="context"), both[1])


def test_hidden_tokens_are_those_of_the_paper(docs):
    sizes = docs.sizes()
    similarity, part = MaskedTokens.from_sizes(sizes, 0.15), rows(*range(2000))
    original = similarity.read(docs, part, RandomKey(0))
    x = similarity.view(original, part, RandomKey(0))
    seen, places, words = x["v0"], x["places"], x["words"]
    special, shown = set(sizes["special"].values()), []
    for i in range(len(original)):
        own = [t for t in range(original.shape[1]) if int(original[i, t]) not in special]
        hidden = [int(t) for t, word in zip(places[i], words[i], strict=True) if word >= 0]
        assert len(hidden) == len(set(hidden)) == (max(1, round(0.15 * len(own))) if own else 0)
        assert set(hidden) <= set(own)
        assert all(seen[i, t] == original[i, t] for t in range(original.shape[1]) if t not in hidden)
        shown += [(int(seen[i, t]), int(original[i, t])) for t in hidden]
        assert [int(word) for word in words[i] if word >= 0] == [int(original[i, t]) for t in hidden]
    masked, kept = (sum(hit) / len(shown) for hit in ([a == sizes["special"]["mask"] for a, _ in shown], [a == b for a, b in shown]))
    assert (masked, kept) == (pytest.approx(0.8, abs=0.02), pytest.approx(0.1, abs=0.02))
    everywhere = [int(t) for row in range(2000) for t, word in zip(places[row], words[row], strict=True) if word >= 0]
    assert set(everywhere) >= set(range(1, 11)), "every place of a sentence is hidden at times"
    few = similarity.view(similarity.read(docs, part[7:9], RandomKey(0)), part[7:9], RandomKey(0))["v0"]
    assert torch.equal(few, seen[7:9, : few.shape[1]]), "what is hidden in a row does not depend on its neighbors"


def test_a_text_without_tokens_hides_nothing(docs):
    special = docs.sizes()["special"]
    empty = torch.tensor([[special["cls"], special["sep"]] + [special["pad"]] * 6])
    x = MaskedTokens.from_sizes(docs.sizes(), 0.15).view(empty, rows(0), RandomKey(0))
    assert torch.equal(x["v0"], empty)
    assert (x["words"] == -1).all()


def test_runs_of_sentences_know_their_document(docs):
    similarity = ConsecutiveSentences(4)
    part = rows(5, 2)
    x = similarity.view(similarity.read(docs, part, RandomKey(0)), part, RandomKey(0))
    ids = [20, 21, 22, 23, 8, 9, 10, 11]
    assert torch.equal(x["texts"], docs.read(ids))
    for i, a in enumerate(ids):
        for j, b in enumerate(ids):
            same = docs.document_ids[a] == docs.document_ids[b] and i // 4 == j // 4
            assert (x["passage"][i] == x["passage"][j]) == same
    with pytest.raises(UsageError, match="sentences in their order"):
        similarity.count(load_texts(["a", "b", "c", "d", "e"]).train)


def test_columns_ask_for_what_they_need():
    pairs = load_texts({"a": list("abcdefgh"), "b": list("ijklmnop")}).train
    with pytest.raises(UsageError, match=r"rows of 3 texts, .* has 2"):
        TextColumns(3).count(pairs)
    with pytest.raises(UsageError, match="learns from scores"):
        TextColumns(2, "scores").count(pairs)
    assert TextColumns(2).count(pairs) == len(pairs)


def test_simcse_is_its_equation_on_one_batch():
    session = tiny_session("simcse-unsup", batch_size=8)
    h = F.normalize(torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0)).double(), dim=2)
    loss = session.recipe.objective(session.net, {"z0": h[0], "z1": h[1]}, RandomKey(0))
    terms = [-math.log(math.exp(h[0, i] @ h[1, i] / 0.05) / sum(math.exp(h[0, i] @ h[1, j] / 0.05) for j in range(8))) for i in range(8)]
    assert float(loss) == pytest.approx(sum(terms) / 8)


def test_bert_loss_is_the_mean_over_all_hidden_tokens():
    session = tiny_session("bert", exact=True, batch_size=16)
    similarity, part = session.similarity(), rows(*range(16))
    x = similarity.view(similarity.read(session.data, part, RandomKey(0)), part, RandomKey(0))
    z = session.recipe.embed(session.net, x, RandomKey(0))
    net, total, count = session.net.requires_grad_(False), 0.0, 0
    states = net.encoder.encode_tokens(x["v0"])
    for i, j in (x["words"] >= 0).nonzero().tolist():
        logits = net.head(states[i, x["places"][i, j]]) @ net.encoder.token_embeddings.T + net.bias
        total += float(F.cross_entropy(logits[None], x["words"][i, j][None]))
        count += 1
    assert float(session.recipe.objective(net, z, RandomKey(0))["loss"].detach()) == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize("goal", ["softmax", "regression", "triplet"])
def test_sentence_bert_learns_each_goal(goal):
    data = "docstring-triples" if goal == "triplet" else "docstring-pairs"
    run = nearfar.fit("sentence-bert", preset="tiny", data=data, loss_type=goal, steps=40, log_every=1)
    losses = [m["loss"] for m in run.metrics if "loss" in m]
    assert sum(losses[-5:]) < sum(losses[:5])
    assert hasattr(run.net, "classifier") == (goal == "softmax")


def test_triples_bring_positives_nearer_than_negatives():
    session = tiny_session("simcse-sup", steps=100)
    train(session)
    net, held_out = session.net.eval(), opened_for(type(session.recipe), recipes.load_method("simcse-sup").tiny[1]).test
    a, p, n = F.normalize(session.recipe.encode(net, held_out.read_columns(range(300), 3).flatten(0, 1)), dim=1).chunk(3)
    assert ((a * p).sum(1) > (a * n).sum(1)).float().mean() > 0.6


def test_from_lines_to_report(tmp_path, capsys):
    """fit, eval, embed and report of a user's own file, through the command line."""
    text = "\n".join(f"Sentence number {i} is about {'cats' if i % 2 else 'dogs'} and {i % 7} things." for i in range(80))
    (tmp_path / "mine.txt").write_text(text)
    run, flags = (
        str(tmp_path / "run"),
        ["--encoder", "bag", "--vocab-size", "300", "--max-length", "16", "--steps", "4", "--batch-size", "16"],
    )
    assert main(["fit", "simcse-unsup", "--data", str(tmp_path / "mine.txt"), "--out", run, *flags]) == 0
    assert main(["eval", run]) == 0
    table = capsys.readouterr().out
    assert all(name in table for name in ("tf-idf", "bag of words", "untrained encoder", "trained encoder"))
    assert main(["embed", run, "--data", str(tmp_path / "mine.txt"), "--out", str(tmp_path / "v.npy")]) == 0
    vectors = np.load(tmp_path / "v.npy", allow_pickle=False)
    loaded = nearfar.load(run)
    assert np.array_equal(vectors[:3], loaded.encode(text.splitlines()[:3]).numpy())
    assert main(["report", run]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "sentence number" in page
    assert "64 training texts" in page
    (tmp_path / "mine.txt").write_text(text + "\nOne more.")
    assert main(["eval", run]) == 2
    assert "has changed" in capsys.readouterr().err


def test_reports_of_pairs_and_labels(tmp_path):
    said = [f"Sentence number {i} is about {'cats' if i % 2 else 'dogs'} and {i % 7} things" for i in range(601)]
    lines = [f"{first},{second},{'same' if i % 2 else 'other'},{i % 2}" for i, (first, second) in enumerate(itertools.pairwise(said))]
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("\n".join(["sentence1,sentence2,label,score", *lines]))
    run = nearfar.fit("sentence-bert", data=str(pairs), encoder="bag", steps=2, out=tmp_path / "run", **TINY)
    page = write_model_report(run).read_text()
    assert page.count('<q class="words"') > 48
    table = evaluate_model(run)
    found = table.results[-1]
    assert "a label describes 2 texts" in table.render()
    assert found["spread"] > 0
    assert not {"linear", "knn", "few_labels"} & set(found), "the label is of both texts, a vector of one"
    assert embed(run, str(pairs), tmp_path / "v.parquet", split="test") > 100
    import pyarrow.parquet as pq

    assert pq.read_table(tmp_path / "v.parquet").column_names == ["name", "label", "vector"]


def test_an_encoder_goes_on_from_another_run_with_its_tokenizer(tmp_path):
    first = nearfar.fit("bert", data="docstrings", encoder="bag", steps=2, out=tmp_path / "bert", **TINY)
    second = nearfar.fit(
        "simcse-unsup", data="docstring-triples", init_from=str(tmp_path / "bert"), steps=1, lr=1e-9, max_length=16, batch_size=32
    )
    assert second.config.encoder == "bag"
    assert second.tokenizer.to_json() == first.tokenizer.to_json()
    texts = ["the same words", "in both runs"]
    assert torch.allclose(first.encode(texts), second.encode(texts), atol=1e-6)


def test_a_damaged_tokenizer_is_named(tmp_path):
    nearfar.fit("simcse-unsup", data="docstrings", encoder="bag", steps=1, out=tmp_path / "run", **TINY)
    (tmp_path / "run" / "tokenizer.json").write_text("{}")
    with pytest.raises(nearfar.NearfarError, match=r"tokenizer\.json is not the tokenizer"):
        nearfar.load(tmp_path / "run")


def test_image_methods_do_not_take_texts_and_the_other_way_round(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    with pytest.raises(UsageError, match="cannot read images"):
        nearfar.fit("simclr", data=tmp_path / "a.txt", steps=1)
    with pytest.raises(UsageError, match="folder or name"):
        nearfar.fit("simcse-unsup", data="digits", steps=1)
    with pytest.raises(UsageError, match="--max-length must be"):
        TrainConfig(max_length=0)


def test_too_few_sentences_for_a_run_of_them_are_said(tmp_path):
    (tmp_path / "short.txt").write_text("One here.\nTwo here.\nThree here.\n")
    for batch in (None, 4):
        with pytest.raises(UsageError, match="fewer than --consecutive-sentences 8"):
            nearfar.fit("quick-thought", data=str(tmp_path / "short.txt"), encoder="bag", vocab_size=300, steps=1, batch_size=batch)


def test_sentences_on_both_sides_of_a_test_sentence_are_no_neighbours(tmp_path):
    (tmp_path / "book.txt").write_text("\n".join(f"Sentence {i} of a book." for i in range(100)))
    train = load_texts(str(tmp_path / "book.txt")).train
    lines = [int(text.split()[1]) for text in train.get_strings()]
    assert len(lines) == 80
    for i in range(79):
        assert (train.segment_ids[i] == train.segment_ids[i + 1]) == (lines[i] + 1 == lines[i + 1])


def test_labels_of_texts_are_checked():
    with pytest.raises(UsageError, match="labels must be whole numbers or texts"):
        load_texts({"text": ["a", "b", "c"], "label": [1, None, 2]})
    with pytest.raises(UsageError, match="3 texts but 2 labels"):
        load_texts({"text": ["a", "b", "c"], "label": [1, 2]})


def test_nothing_to_encode_is_said():
    run = nearfar.fit("simcse-unsup", preset="tiny", steps=1, batch_size=8)
    with pytest.raises(UsageError, match=r"nothing to encode|no texts"):
        run.encode([])
    with pytest.raises(UsageError, match="batch must be at least 1, got 0"):
        run.encode(["a"], batch_size=0)


def test_a_share_is_no_percentage():
    with pytest.raises(UsageError, match="share"):
        nearfar.fit("simcse-unsup", preset="tiny", steps=1, augmentation="erase-tokens", changed_share=5.0)


def test_a_run_is_compared_with_the_encoder_it_began_from(tmp_path):
    lines = "\n".join(f"Sentence number {i} is about {'cats' if i % 2 else 'dogs'} and {i % 7} things." for i in range(300))
    (tmp_path / "mine.txt").write_text(lines)
    settings = {"preset": "tiny", "data": str(tmp_path / "mine.txt")}
    nearfar.fit("bert", steps=2, out=tmp_path / "mlm", **settings)
    run = nearfar.fit("bert-whitening", components=None, init_from=str(tmp_path / "mlm"), out=tmp_path / "white", **settings)
    donor, texts = nearfar.load(tmp_path / "mlm"), ["A text.", "Another one."]
    assert torch.equal(run.build_from_init().encode(texts), donor.encode(texts))
    assert "encoder it began from" in [row["representation"] for row in evaluate_model(run).rows]
    shutil.rmtree(tmp_path / "mlm")
    assert run.build_from_init() is None
    assert run.build_untrained().build_from_init() is None
