"""Triples: files and their mistakes, splits, corruptions, the hinge against its plain form, what a step touches, the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import nearfar
from nearfar.api.evaluate import measure_model
from nearfar.cli.main import main
from nearfar.core import NearfarError, RandomKey, Rows, RuntimeConfig, TrainConfig, UsageError
from nearfar.data.triples.dataset import Triples
from nearfar.data.triples.inputs import TripleInputs
from nearfar.data.triples.load import load_triples
from nearfar.losses.hinge import translation_hinge
from nearfar.losses.sparse_translation_hinge import sparse_translation_hinge
from nearfar.recipes.graph.transe import TransE
from nearfar.similarity.triples import CorruptedTriples, compute_head_probabilities
from nearfar.train.session import TrainingSession
from nearfar.train.training_loop import train

FAMILY = [("ann", "mother of", "bob"), ("ann", "mother of", "cat"), ("bob", "brother of", "cat"), ("cat", "sister of", "bob")]


def write(path, triples):
    path.write_text("".join("\t".join(triple) + "\n" for triple in triples))


@pytest.fixture
def folder(tmp_path):
    for split, triples in {"train": FAMILY[:3], "valid": [("bob", "mother of", "cat")], "test": [("cat", "brother of", "bob")]}.items():
        write(tmp_path / f"{split}.txt", triples)
    return tmp_path


def test_a_folder_brings_its_splits_and_everything_true_is_known(folder):
    write(folder / "test.txt", [("ann", "brother of", "bob")])
    found = load_triples(folder)
    assert found.train.entities == ("ann", "bob", "cat")
    assert found.train.relations == ("brother of", "mother of")
    assert found.train.triples.tolist() == [[0, 1, 1], [0, 1, 2], [1, 0, 2]]
    assert found.test.triples.tolist() == [[0, 0, 1]]
    assert [0, 0, 1] in found.train.known_triples.tolist()
    assert found.test_ids is None
    assert found.train.fingerprint == load_triples(folder).train.fingerprint


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("test.txt", "ann\tmother of\tzoe\n", ["test.txt, line 1", "entity 'zoe'"]),
        ("test.txt", "cat\tmother of\tbob\n\nann\taunt of\tbob\n", ["test.txt, line 3", "relation 'aunt of'"]),
        ("valid.txt", "ann\tmother of\n", ["valid.txt, line 1", "separated by tabs"]),
        ("train.txt", "ann mother of bob\n", ["train.txt, line 1", "separated by tabs"]),
        ("train.txt", "", ["train.txt"]),
    ],
)
def test_mistakes_are_named_with_file_and_line(folder, file, content, said):
    (folder / file).write_text(content)
    with pytest.raises(NearfarError) as error:
        load_triples(folder)
    assert all(part in str(error.value) for part in said)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_training_triple_is_no_test_of_what_was_learnt(folder, split, caplog):
    clean = load_triples(folder)
    fresh = ("cat", "brother of", "bob")
    write(folder / f"{split}.txt", [fresh, FAMILY[1], FAMILY[0]])
    with pytest.raises(NearfarError, match=rf"{split}\.txt, line 2: .*2 of its 3 triples.*training.*--on-error skip"):
        load_triples(folder)
    found = load_triples(folder, on_error="skip")
    assert {"valid": found.train.valid_triples, "test": found.test.triples}[split].tolist() == [[2, 0, 1]]
    assert found.train.fingerprint == clean.train.fingerprint
    assert [line.split(": ")[0] for line in found.train.skipped] == [f"{folder / split}.txt, line {line}" for line in (2, 3)]
    nearfar.fit("transe", folder, on_error="skip", steps=1, batch_size=2, device="cpu")
    assert "2 samples could not be read and will be left out; the first:" in caplog.text


@pytest.mark.parametrize(
    ("name", "counts"), [("WN18", (141_442, 5_000, 5_000)), ("FB15k-237", (272_115, 17_535, 20_466)), ("kinship", (8_544, 1_068, 1_074))]
)
def test_published_sets_are_whole(data_folder, name, counts):
    folder = data_folder / "kg" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not there")
    found = load_triples(folder, on_error="skip" if name == "FB15k-237" else "stop")
    lost = {split: sum(f"{split}.txt" in line for line in found.train.skipped) for split in ("train", "valid", "test")}
    assert (len(found.train.triples), len(found.train.valid_triples), len(found.test.triples)) == tuple(
        count - lost[split] for count, split in zip(counts, lost, strict=True)
    )
    assert all("no training triple" in line for line in found.train.skipped)


def test_bytes_that_are_no_text_are_named(folder):
    (folder / "train.txt").write_bytes(b"ann\tmother of\tbob\nann\tm\xff\tbob\n")
    with pytest.raises(NearfarError, match=r"train.txt, line 2: not UTF-8"):
        load_triples(folder)


def test_broken_lines_are_left_out_where_the_user_says_so(folder):
    good = load_triples(folder)
    with (folder / "train.txt").open("ab") as file:
        file.write(b"ann mother of bob\nann\tm\xff\tbob\nann\t\0\tbob\n")
    (folder / "test.txt").write_text("ann\tmother of\tzoe\ncat\tbrother of\tbob\n")
    found = TripleInputs().load_splits(folder, TrainConfig(on_error="skip"))
    assert found.train.fingerprint == good.train.fingerprint
    assert np.array_equal(found.test.triples, good.test.triples)
    places = [("train", 4), ("train", 5), ("train", 6), ("test", 1)]
    assert [line.split(": ")[0] for line in found.train.skipped] == [f"{folder / split}.txt, line {line}" for split, line in places]
    with pytest.raises(NearfarError, match=r"train.txt, line 4: .*--on-error skip"):
        TripleInputs().load_splits(folder, TrainConfig())


def test_a_file_and_a_list_may_have_broken_triples_too(tmp_path):
    write(tmp_path / "all.tsv", [*FAMILY[:2], ("ann", "bob"), *FAMILY[1:], ("", "x", "y")])
    found = load_triples(tmp_path / "all.tsv", test_ids=[], on_error="skip").train
    assert found.fingerprint == load_triples(FAMILY, test_ids=[]).train.fingerprint
    assert [line.split(": ")[0] for line in found.skipped] == [f"{tmp_path / 'all.tsv'}, line {line}" for line in (3, 7)]
    listed = load_triples([*FAMILY, ("ann", "bob")], test_ids=[], on_error="skip").train
    assert listed.fingerprint == found.fingerprint
    assert listed.skipped[0].startswith("triple 4: expected three names")


def test_an_unknown_name_is_named_by_its_line_in_the_file(tmp_path):
    write(tmp_path / "all.tsv", [FAMILY[0], FAMILY[0], FAMILY[1], (), FAMILY[3]])
    names = ["ann", "bob", "cat"], ["mother of"]
    with pytest.raises(NearfarError, match=r"all.tsv, line 5: the relation 'sister of'"):
        load_triples(tmp_path / "all.tsv", names=names)
    found = load_triples(tmp_path / "all.tsv", names=names, test_ids=[], on_error="skip").train
    assert found.triples.tolist() == [[0, 0, 1], [0, 0, 2]]
    assert len(found.skipped) == 1


def test_a_run_counts_the_lines_that_it_left_out(tmp_path, caplog):
    write(tmp_path / "all.tsv", [*FAMILY, ("ann", "bob")])
    (tmp_path / "edges.txt").write_text("a b\nb c\nc\n")
    for recipe, file, batch in (("transe", "all.tsv", 2), ("node2vec", "edges.txt", 2), ("dgi", "edges.txt", 1)):
        caplog.clear()
        nearfar.fit(recipe, tmp_path / file, out=tmp_path / recipe, on_error="skip", steps=1, batch_size=batch, device="cpu")
        skipped = json.loads((tmp_path / recipe / "config.json").read_text())["data"]["skipped"]
        assert len(skipped) == 1
        assert skipped[0] in caplog.text


@pytest.mark.parametrize("spec", ["nowhere", 7, [], [("a", "b")], [("a", "b", 3)]])
def test_what_is_no_source_of_triples_is_said(spec):
    with pytest.raises(UsageError):
        load_triples(spec)


def test_a_single_file_is_split_by_key_and_no_test_name_is_new(tmp_path):
    rng = np.random.default_rng(0)
    triples = [(f"e{a}", f"r{r}", f"e{b}") for a, r, b in rng.integers(0, 30, (200, 3))]
    write(tmp_path / "all.tsv", triples + triples[:50])
    found = load_triples(tmp_path / "all.tsv", seed=3)
    train, test = found.train.triples, found.test.triples
    assert len(train) + len(test) == len(set(triples)), "each triple counts once"
    assert not {tuple(t) for t in train} & {tuple(t) for t in test}
    assert np.isin(test[:, [0, 2]], train[:, [0, 2]]).all()
    assert np.isin(test[:, 1], train[:, 1]).all()
    again = load_triples(tmp_path / "all.tsv", seed=99, test_ids=found.test_ids)
    assert np.array_equal(again.test.triples, test), "the stored split, whatever the seed"
    other = load_triples(tmp_path / "all.tsv", seed=4).test.triples
    assert not np.array_equal(other, test)


@pytest.mark.parametrize("seed", range(3))
def test_names_that_occur_once_stay_in_the_training_split(seed):
    """A ring of common names, half of its members with a neighbor that occurs nowhere else, and relations that occur once."""
    ring = [(f"e{i}", "next", f"e{(i + 1) % 40}") for i in range(40)]
    once = [(f"lone head {i}", "next", f"e{i}") for i in range(20)] + [(f"e{i}", "next", f"lone tail {i}") for i in range(20)]
    rare = [(f"e{i}", f"rare {i}", f"e{i + 5}") for i in range(20)]
    found = load_triples(ring + once + rare, seed=seed)
    entities, relations = found.train.entities, found.train.relations
    trained = {entities[i] for i in found.train.triples[:, [0, 2]].ravel()}, {relations[i] for i in found.train.triples[:, 1]}
    assert trained == (set(entities), set(relations))
    assert len(found.train.triples) + len(found.test.triples) == 100
    assert len(found.test.triples) >= 3


def test_the_standard_library_is_a_knowledge_graph():
    found = load_triples("python")
    names = found.train.entities
    said = {(names[h], found.train.relations[r], names[t]) for h, r, t in found.train.known_triples}
    assert ("logging.StreamHandler", "inherits", "logging.Handler") in said
    assert ("logging.Handler", "defined in", "logging") in said
    assert ("emit()", "of", "logging.StreamHandler") in said
    assert len(found.test.triples) > 300


def drawn(how, data, k=64):
    ids = np.arange(len(data.triples))
    similarity = CorruptedTriples(len(data), k, how)
    rows = Rows(ids, ids + 1000, ids)
    return similarity.view(similarity.read(data, rows, RandomKey(0)), rows, RandomKey(0)("view"))


def test_corruptions_change_one_end_to_another_entity_and_are_keyed_by_row():
    data = load_triples([(f"h{i % 7}", "r", f"t{i}") for i in range(40)]).train
    x = drawn("uniform", data)
    true = torch.where(x["of_head"], x["head"][:, None], x["tail"][:, None])
    assert (x["other"] != true).all()
    assert x["other"].unique().tolist() == list(range(len(data)))
    assert 0.45 < float(x["of_head"].float().mean()) < 0.55
    ids = np.array([5, 3])
    similarity = CorruptedTriples(len(data), 64)
    part = similarity.view(
        similarity.read(data, Rows(ids, ids + 1000, ids), RandomKey(0)), Rows(ids, ids + 1000, ids), RandomKey(0)("view")
    )
    assert torch.equal(part["other"], x["other"][[5, 3]])


def test_bernoulli_corrupts_the_end_that_is_less_often_true_by_chance():
    many = [("h", "has", f"t{i}") for i in range(9)]
    one = [(f"a{i}", "is", f"b{i}") for i in range(9)]
    data = load_triples([*many, *one], test_ids=[]).train
    share = compute_head_probabilities(data)
    assert share[data.relations.index("has")] == pytest.approx(0.9)
    assert share[data.relations.index("is")] == pytest.approx(0.5)
    x = drawn("bernoulli", data)
    of_has = x["of_head"][x["relation"] == data.relations.index("has")]
    assert 0.85 < float(of_has.float().mean()) < 0.95


@pytest.mark.parametrize("p", [1, 2])
def test_the_hinge_over_tables_is_the_plain_one_with_its_gradient(p):
    torch.manual_seed(0)
    tables = [torch.randn(9, 5, dtype=torch.float64, requires_grad=True), torch.randn(3, 5, dtype=torch.float64, requires_grad=True)]
    head, kind, tail = torch.randint(0, 9, (20,)), torch.randint(0, 3, (20,)), torch.randint(0, 9, (20,))
    other, of_head = torch.randint(0, 9, (20, 4)), torch.rand(20, 4) < 0.5
    weight = torch.randn(20, dtype=torch.float64)
    found = sparse_translation_hinge(*tables, head, kind, tail, other, of_head, 1.5, p)
    grads = [g.to_dense() for g in torch.autograd.grad((found * weight).sum(), tables)]

    def distance(h, t):
        return torch.linalg.vector_norm(tables[0][h] + tables[1][kind].view(len(kind), *[1] * (h.ndim - 1), 5) - tables[0][t], p, dim=-1)

    corrupt_head, corrupt_tail = torch.where(of_head, other, head[:, None]), torch.where(of_head, tail[:, None], other)
    wanted = translation_hinge(distance(head, tail), distance(corrupt_head, corrupt_tail), 1.5)
    torch.testing.assert_close(found, wanted)
    for mine, true in zip(grads, torch.autograd.grad((wanted * weight).sum(), tables), strict=True):
        torch.testing.assert_close(mine, true)


def test_a_step_has_no_dense_gradient_and_moves_only_its_own_rows():
    n, rng = 200_000, np.random.default_rng(0)
    facts = np.stack([rng.integers(0, n, 500), np.zeros(500, dtype=np.int64), rng.integers(0, n, 500)], axis=1)
    data = Triples(tuple(map(str, range(n))), ("r",), facts, facts[:0], facts)
    config = TrainConfig(batch_size=64, steps=1, optimizer="adagrad", lr=0.1, warmup_ratio=0.0)
    session = TrainingSession(TransE(dim=8), config, RuntimeConfig(device="cpu"), data, torch.device("cpu"))
    before, grads = session.net.encoder.weight.detach().clone(), []
    session.optimizers[0].register_step_pre_hook(lambda *_: grads.extend(p.grad for p in session.net.parameters()))
    train(session)
    assert all(grad.is_sparse and len(grad._values()) <= 3 * 64 for grad in grads)
    after = session.net.encoder.weight.detach()
    moved = (after != before).any(1)
    assert 64 < int(moved.sum()) <= 3 * 64
    torch.testing.assert_close(after[moved].norm(dim=1), torch.ones(int(moved.sum())))


def test_a_trained_table_completes_what_it_was_not_told():
    """Everybody of a town lives in its country: of some the country is held out, and follows from the town."""
    triples = [(f"country {c}", "has", f"town {c}{t}") for c in range(4) for t in range(3)]
    people = [(f"p{i:03d}", i % 4, i % 3) for i in range(96)]
    triples += [(p, "lives in", f"town {c}{t}") for p, c, t in people] + [(p, "citizen of", f"country {c}") for p, c, t in people]
    trained = nearfar.fit("transe", triples, dim=16, batch_size=64, epochs=80, optimizer="adagrad", lr=0.2, warmup_ratio=0.0)
    rows = {r["representation"]: r for r in measure_model(trained, triples).table.results}
    assert rows["trained table"]["hits10"] > 1.5 * rows["frequency"]["hits10"]
    assert rows["trained table"]["mrr"] > 2 * rows["untrained table"]["mrr"]


def test_names_are_encoded_and_unknown_ones_refused():
    trained = nearfar.fit("transe", preset="tiny", steps=2)
    vectors = trained.encode(["logging.Handler", "object"])
    assert vectors.shape == (2, 32)
    assert torch.equal(trained.encode("object"), vectors[1:])
    with pytest.raises(UsageError, match=r"Did you mean 'logging\.Handler'"):
        trained.encode(["logging.Handlr"])


def test_the_command_line_from_fit_to_report(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "transe", "--tiny", "--steps", "60", "--out", "run", "-q"]) == 0
    assert main(["fit", "--resume", "run", "-q"]) == 0
    capsys.readouterr()
    assert main(["eval", "run", "--json", "-q"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert list(dict.fromkeys(row["system"] for row in table["rows"])) == ["frequency", "untrained table", "trained table"]
    assert {row["metric"] for row in table["rows"]} == {"mrr", "hits1", "hits3", "hits10", "mean_rank"}
    assert {row["suite"] for row in table["rows"]} == {"links"}
    assert main(["embed", "run", "--data", "python", "--out", "vectors.npy", "-q"]) == 0
    assert np.load("vectors.npy").shape == (len(load_triples("python").train), 32)
    assert main(["report", "run", "-q"]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "hits@10" in page
    assert "Nearest neighbors" in page
    assert "Positive pairs" not in page
