"""The model card of a run: readable by Hugging Face's own reader, true to the run, refreshed by an evaluation."""

from __future__ import annotations

import json
import re

import pytest
from huggingface_hub import ModelCard

import nearfar
from nearfar.api.evaluate import evaluate_model
from nearfar.cli.main import main
from nearfar.evaluate import ResultTable
from nearfar.reports.model_card import _model_index, write_model_card

TINY = {"preset": "tiny", "steps": 3, "batch_size": 16}


@pytest.fixture
def run(tmp_path):
    return nearfar.fit("simclr", out=tmp_path / "run", temperature=0.25, **TINY)


def test_a_run_ends_with_a_card_that_hugging_face_reads(run):
    card = ModelCard.load(run.run_folder.path / "README.md")
    assert card.data.library_name == "nearfar"
    assert card.data.pipeline_tag == "image-feature-extraction"
    assert {"contrastive-learning", "simclr", "image"} <= set(card.data.tags)
    assert run.recipe.card.equation in card.text
    assert "arXiv:2002.05709" in card.text
    assert "CC BY 4.0" in card.text
    assert "Not measured yet" in card.text
    assert "Requirements" not in card.text.split("## Limits")[0]
    assert "a batch with enough negatives" in card.text.split("## Limits")[1]
    settings = json.loads(re.search(r"```json\n(.*?)```", card.text, re.DOTALL)[1])
    assert (settings["temperature"], settings["steps"], settings["data"]) == (0.25, 3, "digits")
    config = run.run_folder.read_config()["data"]
    assert f"training samples: {config['train']:,}; test samples: {config['test']:,}" in card.text


def test_the_lines_that_load_it_work(run):
    text = (run.run_folder.path / "README.md").read_text()
    lines = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1].replace('"RUN"', repr(str(run.run_folder.path)))
    known = {"images": nearfar.data.load_images("digits").test}
    exec(lines, known)
    assert known["vectors"].shape == (len(known["images"]), 128)


@pytest.mark.slow
def test_eval_writes_the_numbers_with_their_protocol(run, capsys):
    path = str(run.run_folder.path)
    assert main(["eval", path]) == 0
    shown = capsys.readouterr().out
    card = ModelCard.load(run.run_folder.path / "README.md")
    assert shown.strip() in card.text
    assert "Not measured yet" not in card.text
    knn = {result.metric_name: result.metric_value for result in card.data.eval_results}["kNN, trained encoder"]
    assert re.search(rf"trained encoder .*\b{knn:.2f}", shown)
    assert {result.dataset_name for result in card.data.eval_results} == {"digits"}
    before = (run.run_folder.path / "README.md").read_bytes()
    assert main(["eval", path, "--data", "digits"]) == 0
    assert (run.run_folder.path / "README.md").read_bytes() == before, "numbers on other data are not the run's own"


def test_every_column_is_published_under_its_own_type(run):
    values = {"knn": 0.5, "mrr": 0.25, "macro_f1": 0.1, "hits3": 0.8, "top20": 0.2, "to_text_5": 0.3, "exact": 0.4, "f1 agent": 0.6}
    own = {"top20": "top-20", "to_text_5": "R@5", "exact": "exact match", "f1 agent": "agent", "zero_shot": "zero-shot"}
    table = ResultTable([{"representation": "ours", "baseline": False, **values}], {"accuracies": own, "notes": []})
    (listed,) = _model_index(run, table)
    types = {metric["name"].removesuffix(", ours"): (metric["type"], metric["value"]) for metric in listed["results"][0]["metrics"]}
    assert types == {
        "kNN": ("accuracy", 50), "MRR": ("mrr", 25), "macro-F1": ("f1", 10), "hits@3": ("hits@3", 80), "top-20": ("accuracy@20", 20),
        "R@5": ("recall@5", 30), "exact match": ("exact_match", 40), "agent": ("f1", 60),
    }  # fmt: skip


def test_a_new_run_in_the_same_folder_forgets_the_old_numbers(run):
    evaluate_model(run)
    with pytest.raises(nearfar.UsageError, match="--batch-size"):
        nearfar.fit("simclr", out=run.run_folder.path, overwrite=True, preset="tiny", steps=1, batch_size=10**6)
    again = nearfar.fit("simclr", out=run.run_folder.path, overwrite=True, **TINY)
    assert "Not measured yet" in (again.run_folder.path / "README.md").read_text()


def test_a_readme_of_somebody_elses_stays(run):
    path = run.run_folder.path / "README.md"
    path.write_text("# my notes")
    write_model_card(run)
    assert path.read_text() == "# my notes"


def test_paths_of_the_machine_stay_out_of_it(tmp_path):
    (tmp_path / "secret").mkdir()
    lines = "\n".join(f"Sentence {i} speaks of the number {i * i} and of nothing else." for i in range(200))
    (tmp_path / "secret" / "mine.txt").write_text(lines)
    (tmp_path / "secret" / "LICENSE.txt").write_text("all rights reserved")
    run = nearfar.fit("simcse-unsup", tmp_path / "secret" / "mine.txt", out=tmp_path / "run", encoder="bag", vocab_size=300, **TINY_TEXT)
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert "secret" not in str(card)
    assert "source: mine.txt" in card.text
    assert "see LICENSE.txt next to the data" in card.text
    assert card.data.pipeline_tag == "sentence-similarity"
    assert run.step == 2


TINY_TEXT = {"steps": 2, "batch_size": 16, "max_length": 16}


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_model_card(nearfar.fit("simclr", **TINY))
    assert not list(tmp_path.iterdir())
