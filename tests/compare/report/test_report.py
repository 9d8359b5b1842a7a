"""The report of a whole experiment and of one with missing parts: its content, and the page that shows it."""

import base64
import hashlib
import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import msgspec
import numpy as np
import pytest

from compare.analysis.alignment import attend_words
from compare.analysis.comparison import Comparison, choose_reference, compare_models
from compare.analysis.finished_experiment import FinishedExperiment, load_finished
from compare.analysis.statistics import score_tests
from compare.analysis.word_links import word_pairs
from compare.attention.weights import AttentionHead
from compare.cli import main
from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models
from compare.config.sections import ScoringConfig
from compare.experiment.tune import TrialResult, write_trials
from compare.report.drawing import Bar, bar_plot
from compare.report.html import examples, page, sections
from compare.report.html.examples import attention_viewer, differences, draw_numbers
from compare.report.html.page import ReportContent, describe_verdict, gather_content
from compare.report.html.sections import Section, embed_figure, tuning_section
from compare.results.run_folder import RunFolder, load_model
from compare.results.store import read_result
from data.corpus import Pairs
from tests.kits.common import Refusal
from tests.kits.experiments import VIEWER, change_result, write_experiment


@pytest.fixture(scope="module")
def content(made: Path) -> ReportContent:
    return gather_content(made)


@pytest.fixture(scope="module")
def experiment(made: Path) -> FinishedExperiment:
    return load_finished(made)


def column(content: ReportContent, heading: str) -> dict[str, str]:
    """A column of the result table, by model."""
    (match,) = (candidate for candidate in content.results.columns if candidate.heading == heading)
    return {row["label"]: match.text(row) for row in content.results.rows}


def section(content: ReportContent, name: str) -> Section:
    (match,) = (candidate for candidate in content.sections if candidate.name == name)
    return match


# Result table and significance.


@pytest.mark.usefixtures("undrawn")
def test_the_table_holds_means_over_seeds_and_each_run(content: ReportContent, made: Path, tmp_path: Path):
    runs = [read_result(made / f"rnn-seed{seed}") for seed in (1, 2)]
    scores = [run.bleu for run in runs]
    assert column(content, "BLEU")["rnn"] == f"{fmean(scores):.1f} ± {stdev(scores):.1f}"
    columns = {column.heading: column for column in content.results.columns}
    rows = content.results.rows[1]["runs"]
    assert [columns["BLEU"].order(row) for row in rows] == scores
    interval = columns["test set [95%]"].text(rows[1])
    assert interval == f"[{runs[1].bleu_ci_low:.1f}, {runs[1].bleu_ci_high:.1f}]"
    shown = columns.keys() - content.results.optional
    assert {"BLEU", "combined [95%]", "against transformer", "chrF", "params (M)"} <= shown
    hidden = {"test set [95%]", "seeds [95%]", "brevity penalty", "BLEU test_long"}
    assert hidden <= columns.keys() - shown
    single = gather_content(write_experiment(tmp_path / "single", seeds=[1]))
    assert not {"seeds [95%]", "combined [95%]"} & set(single.results.headings)
    assert "Every model finished with one seed: the variation between seeds is unknown." in single.unknown
    against = "".join(column(single, "against transformer").values())
    assert "▽ −" in against
    assert not set("▲▼") & set(against)


@pytest.mark.usefixtures("undrawn")
def test_models_are_set_against_the_best_or_the_baseline(content: ReportContent, made: Path):
    assert content.reference == "transformer"
    against = column(content, "against transformer")
    assert against["transformer"] == "itself"
    assert against["lstm"].startswith("−")
    assert content.summary[0].startswith("On test, rnn is ")
    assert " is behind transformer by " in content.summary[0]
    finished = load_finished(made)
    assert choose_reference(finished) == "transformer"
    for baseline, reference in (("lstm", "lstm"), ("not-finished", "transformer")):
        scoring = ScoringConfig(baseline=baseline)
        runs = [replace(run, run=replace(run.run, scoring=scoring)) for run in finished.runs]
        assert choose_reference(replace(finished, runs=tuple(runs))) == reference


@pytest.mark.parametrize(
    ("changes", "cell"),
    [
        ({}, "▲ +2.5 [+0.5, +4.5]"),
        ({"p": 0.2}, "+2.5 [+0.5, +4.5]"),
        ({"seeds": (1, 3)}, "△ +2.5 [+0.5, +4.5]"),
        ({"failed": ("a seed 1",)}, "runs failed"),
        (
            {"p": 0.2, "difference": -0.1, "interval": (-0.5, 0.5), "interval_90": (-0.4, 0.4)},
            "≈ −0.1 [−0.5, +0.5]",
        ),
    ],
)
def test_a_mark_says_who_wins(changes: dict[str, Any], cell: str):
    settings = {"seeds": (3, 3), "difference": 2.5, "p": 0.003, "interval": (0.5, 4.5), **changes}
    settings = {
        "first": "a",
        "second": "b",
        "p_alone": 0.001,
        "smallest": 1.0,
        "interval_90": (1, 4),
        **settings,
    }
    assert describe_verdict(Comparison(**settings)) == cell


def test_every_comparison_is_listed(content: ReportContent, experiment: FinishedExperiment):
    significance = section(content, "significance")
    (details,) = significance.tables
    scored = score_tests(experiment)
    expected = compare_models(scored)
    rows = [(row["model"], row["against"], row["verdict"]) for row in details.rows]
    assert rows == [(comparison.first, comparison.second, comparison.verdict) for comparison in expected]
    low, high = expected[0].interval
    assert details.rows[0]["95% interval"] == f"{low:.2f} to {high:.2f}"
    assert f"the {len(expected)} comparisons on this page" in significance.notes[0]


@pytest.mark.usefixtures("undrawn")
def test_models_of_different_settings_are_not_compared(copied: Path):
    change_result(copied, "rnn-seed1", settings_hash="a" * 64)
    gathered = gather_content(copied)
    (note,) = section(gathered, "significance").notes
    assert "were trained or decoded with different settings" in note
    assert gathered.summary == [note]
    assert not [heading for heading in gathered.results.headings if "against" in heading]
    assert any("do not share their settings" in line for line in gathered.unknown)


@pytest.mark.usefixtures("undrawn")
def test_a_report_of_several_budgets_begins_with_sentences_table_and_curve(budgets: Path):
    gathered = gather_content(budgets)
    assert gathered.budgets is not None
    assert gathered.budgets.headings[2:4] == ["1,000 updates", "4,000 updates"]
    assert [row["label"] for row in gathered.budgets.rows] == ["lstm", "rnn", "transformer"]
    assert any("Each doubling of the training FLOPs" in line for line in gathered.summary)
    assert gathered.sections[0].name == "cost"
    assert [drawing.choice for drawing in gathered.sections[0].drawings][:2] == ["training FLOPs", "updates"]
    assert gathered.results.rows[-1]["title"] == "nearest-neighbour"
    assert "budgets of 1,000, 4,000 updates" in gathered.facts
    path = budgets.with_name("again.toml")
    path.write_text(gathered.methods.config)
    assert load_experiment(path).train.budgets == (1_000, 4_000)
    text = page.render(gathered)
    places = [
        text.index(part)
        for part in (gathered.summary[0][:20], "1,000 updates</th>", 'id="cost"', 'id="limits"')
    ]
    assert places == sorted(places)


# Missing parts.


@pytest.mark.usefixtures("undrawn")
def test_failed_and_unfinished_rows_stand_in_the_table(copied: Path):
    change_result(copied, "rnn-seed2", status="failed", reason="loss became NaN", bleu=None)
    for run in ("lstm-seed1", "lstm-seed2"):
        shutil.rmtree(copied / run)
    gathered = gather_content(copied)
    assert column(gathered, "status") == {
        "lstm": "0 of 2 done; unfinished",
        "rnn": "1 of 2 done; failed: loss became NaN",
        "transformer": "done",
        "nearest-neighbour": "baseline",
    }
    runs = gathered.results.rows[1]["runs"]
    assert [gathered.results.columns[-1].text(run) for run in runs] == ["done", "failed: loss became NaN"]
    assert column(gathered, "BLEU")["lstm"] == "–"
    assert "lstm seed 2 (unfinished), rnn seed 2 (failed: loss became NaN)" in gathered.unknown[0]
    assert "3 of 6 runs finished" in gathered.facts


@pytest.mark.usefixtures("undrawn")
def test_without_its_corpus_the_rows_are_shown_and_the_rest_says_why(copied: Path, content: ReportContent):
    path = copied.with_name("corpus") / "test.de"
    path.write_text("".join(sorted(path.read_text().splitlines(keepends=True))))
    assert "not that of the runs" in load_finished(copied, needs_texts=False).no_texts
    shutil.rmtree(copied.with_name("corpus"))
    gathered = gather_content(copied)
    assert any("no such folder" in line for line in gathered.unknown)
    for heading in ("BLEU", "seeds [95%]"):
        assert column(gathered, heading)["rnn"] == column(content, heading)["rnn"] != "–"
    assert column(gathered, "test set [95%]")["rnn"] == "–"
    assert not [heading for heading in gathered.results.headings if "combined" in heading]
    assert gathered.sentences == []
    empty = {part.name for part in gathered.sections if not (part.drawings or part.tables)}
    assert empty == {"significance", "lengths", "similarity", "rare-words", "faults", "alignment"}


@pytest.mark.usefixtures("undrawn")
def test_what_cannot_be_made_or_compares_badly_is_said(copied: Path):
    (copied / "lstm-seed1" / "metrics.jsonl").unlink()
    change_result(copied, "rnn-seed2", device="another machine", batch_hash="other batches")
    for run in copied.glob("*-seed*"):
        change_result(copied, run.name, beam_sentences_per_s=50.0)
    gathered = gather_content(copied)
    assert section(gathered, "pareto").tables
    assert "equal within 2%" in section(gathered, "pareto").notes[0]
    assert section(gathered, "learning-curves").drawings == []
    assert "metrics.jsonl" in section(gathered, "learning-curves").notes[0]
    assert section(gathered, "lengths").notes == []
    for text in ("device differ", "rows of seed 2 saw different batches", "does not report energy"):
        assert any(text in line for line in gathered.unknown)


# Methods, sentences and analyses.


def test_settings_are_told_apart_and_read_back(experiment: FinishedExperiment, tmp_path: Path):
    methods = sections.methods(experiment)
    differing = {name: values for name, *values in methods.differing.cells}
    assert differing["model.dropout"] == ["0.0", "0.1", "0.2"]
    assert differing["model.preset"] == ['"lstm"', '"rnn"', '"transformer"']
    assert "decode.beam_size" not in differing
    path = tmp_path / "made.toml"
    path.write_text(methods.config)
    singles = [RunFolder.read(experiment.folder / f"{label}-seed1").run for label in experiment.labels]
    assert resolve_models(load_experiment(path)) == singles
    assert methods.commands[0] == "attnbench run made.toml --seeds 1,2"
    last = experiment.results[-1]
    conditions = dict(methods.conditions)
    assert conditions["BLEU"] == last.bleu_signature


def test_the_experiment_of_fine_tuned_runs_starts_from_that_of_their_first_weights(
    experiment: FinishedExperiment, tmp_path: Path
):
    runs = [
        replace(run, run=replace(run.run, train=replace(run.run.train, init_from=start, init_hash=start)))
        for run in experiment.runs
        for start in [str(tmp_path / "general" / run.name)]
    ]
    path = tmp_path / "made.toml"
    path.write_text(sections.methods(replace(experiment, runs=tuple(runs))).config)
    train = load_experiment(path).train
    assert (train.init_from, train.init_hash) == (str(tmp_path / "general"), None)


def test_sentences_are_drawn_by_the_seed_and_hold_every_model(experiment: FinishedExperiment):
    assert draw_numbers(1000, 1) == draw_numbers(1000, 1) != draw_numbers(1000, 2)
    drawn = examples.draw_sentences(experiment, 1)
    assert Counter(sentence.test for sentence in drawn) == {"test": 20, "test_long": 20}
    for sentence in drawn:
        index, pairs = sentence.number - 1, experiment.corpus.splits[sentence.test]
        assert (sentence.src, sentence.ref) == (pairs.src[index], pairs.tgt[index])
        assert sentence.words == len(sentence.src.split())
        assert [output.model for output in sentence.outputs] == ["lstm", "rnn", "transformer"]
        for output in sentence.outputs:
            line = experiment.labels[output.model][0].outputs[sentence.test][index]
            texts = [piece.text for piece in output.pieces if piece.kind != "missing"]
            assert " ".join(texts).split() == line.split()
            assert output.exact == (line == sentence.ref) == (output.chrf == pytest.approx(100))


def test_differences_worked_out_by_hand():
    changed = [("same", "Der Hund", True), ("missing", "schläft", True), ("extra", "bellt", True)]
    assert differences("Der Hund bellt.", "Der Hund schläft.") == [*changed, ("same", ".", False)]
    assert differences("ja, ja", "ja , ja") == [("same", "ja, ja", True)]  # white space is no difference


# Attention of trained models.

NUMBERS = [0, 3, 5]


def test_the_viewer_holds_every_head_in_hundredths(finished: Path, monkeypatch):
    trained = load_finished(finished)
    viewer = attention_viewer(trained, NUMBERS, {("luong", 1): AttentionHead("cross", 0)})
    names = [f"{run.result.label}, seed 1 (BLEU {run.result.bleu:.1f})" for run in trained.runs]
    assert [model.name for model in viewer.models] == names
    assert [len(model.heads) for model in viewer.models] == [1, 3]  # two heads and their mean
    assert [model.chosen for model in viewer.models] == [0, 2]
    pairs = word_pairs(trained.corpus.splits["test"])
    for index, run in enumerate(trained.runs):
        for one in attend_words(load_model(run.folder), [pairs[number] for number in NUMBERS]):
            shown = np.array(viewer.sentences[one.number].weights[index])
            assert np.abs(shown.reshape(one.weights.shape) / 100 - one.weights).max() <= 0.005
    assert [sentence.number for sentence in viewer.sentences] == [1, 4, 6]
    assert [sentence.tgt for sentence in viewer.sentences] == [pairs[number].tgt_words for number in NUMBERS]
    sizes = [len(json.dumps(sentence.weights, separators=(",", ":"))) for sentence in viewer.sentences]
    monkeypatch.setattr(examples, "MOST_BYTES", sizes[0] + sizes[1])
    assert len(attention_viewer(trained, NUMBERS, {}).sentences) == 2


def test_errors_and_gold_links_are_shown_and_the_best_head_first(finished: Path, copy: Path):
    """The corpus has none; with the links of a language that is read back to front it has."""
    trained = load_finished(finished)

    def links(pairs: Pairs) -> tuple[str, ...]:
        lengths = (len(line.split()) for line in pairs.src)
        return tuple(" ".join(f"{i}-{n - 1 - i}" for i in range(n)) for n in lengths)

    splits = {name: pairs._replace(links=links(pairs)) for name, pairs in trained.corpus.splits.items()}
    with_gold = replace(trained, corpus=replace(trained.corpus, splits=splits))
    alignment, chosen = sections.alignment_section(with_gold)
    assert not alignment.notes
    errors, heads, entropy = (Counter(row["label"] for row in table.rows) for table in alignment.tables)
    assert errors["diagonal"] == 1
    assert heads.keys() == entropy.keys() == {"luong", "transformer"}
    viewer = attention_viewer(with_gold, NUMBERS, chosen)
    for sentence in viewer.sentences:
        n = len(sentence.src)
        assert sentence.links == [(j, n - 1 - j) for j in range(n)]
    best = {f"{label}, seed {seed}": str(head) for (label, seed), head in chosen.items()}
    assert {model.name.partition(" (")[0]: model.heads[model.chosen] for model in viewer.models} == best
    alignment, chosen = sections.alignment_section(trained)
    assert chosen == {}
    assert [table.title for table in alignment.tables] == ["Entropy of attention"]
    assert "no gold links" in alignment.notes[0]
    (copy / "luong-seed1" / "checkpoints" / "final.safetensors").unlink()
    lost, readable = attention_viewer(load_finished(copy), NUMBERS, {}).models
    assert "final.safetensors" in lost.trouble
    assert (readable.trouble, len(readable.heads)) == ("", 3)


# The search that tuned the models.

DONE = TrialResult(
    **{"label": "", "trial": 1, "settings": {}, "status": "done", "bleu": 1.0, "loss": 1.0, "updates": 100},
    **{"best_update": 100, "seconds": 10.0, "code_version": "test"},
)
LOST = {"status": "failed", "bleu": None, "loss": None, "best_update": None, "reason": "NaN"}


def trials(**bleu: list[float | None]) -> list[TrialResult]:
    """Trials of dropout 0.3, 0.1 and 0.2 with their validation BLEU; None: it diverged."""
    return [
        msgspec.structs.replace(
            DONE,
            label=label,
            trial=number,
            settings={"dropout": rate},
            **({"bleu": score} if score else LOST),
        )
        for label, scores in bleu.items()
        for number, (score, rate) in enumerate(zip(scores, (0.3, 0.1, 0.2), strict=False), start=1)
    ]


TRIALS = trials(lstm=[4.0, 10.0, 1.0], rnn=[20.0, None, 14.0], transformer=[3.0, 33.0, 30.0])


def notes_of(trials: list[TrialResult], experiment: FinishedExperiment, folder: Path) -> list[str]:
    write_trials(folder, trials)
    return tuning_section(experiment, folder).notes


def test_effort_and_settings_that_differ_are_named(experiment: FinishedExperiment, tmp_path: Path):
    other = "does not have the settings of its best trial: dropout"
    first, *others = notes_of(TRIALS, experiment, tmp_path)
    assert "same random draws" in first
    assert others[:2] == [f"lstm {other} 0.0 (best trial: 0.1).", f"rnn {other} 0.1 (best trial: 0.3)."]
    first, *others = notes_of(trials(lstm=[4.0], rnn=[None, None]), experiment, tmp_path)
    assert "different numbers of trials" in first
    assert "rnn: all of its trials failed, so its settings are not tuned." in others


def test_a_search_says_in_what_it_differs_from_the_runs(experiment: FinishedExperiment, tmp_path: Path):
    notes = notes_of(TRIALS, experiment, tmp_path)
    assert "The shared settings of the trials are unknown: the search has no best.toml." in notes
    first, *others = experiment.runs
    budget = replace(first.run.budget, match="params", reference=first.result.label)
    matched = replace(first, run=replace(first.run, budget=replace(budget, amount=77_991.0)))
    experiment, run = replace(experiment, runs=(matched, *others)), matched.run
    larger = replace(run, vocabulary=replace(run.vocabulary, size=6000), budget=budget)
    (tmp_path / "best.toml").write_text(larger.to_toml())
    notes = notes_of(TRIALS, experiment, tmp_path)
    (note,) = (note for note in notes if note.startswith("Settings of the trials differ"))
    assert f"vocabulary.size 6000 (here {run.vocabulary.size})" in note
    assert "budget.amount" not in note
    assert f"train.max_updates 100 (here {run.train.max_updates})" in note
    assert "rnn: its best trial has the highest dropout of all trials." in notes


@pytest.mark.usefixtures("undrawn")
def test_the_page_has_the_section_only_with_trials(
    copied: Path, tmp_path: Path, experiment: FinishedExperiment, refusal: Refusal
):
    """In the experiment's own folder, or in the one that is named; a damaged file is refused or named."""
    assert tuning_section(experiment, None) is None
    search = tmp_path / "search"
    assert str(search / "trials.jsonl") in refusal("report", copied, "-q", "--tuning", search)
    write_trials(search, [])
    assert "no trials of a search" in refusal("report", copied, "-q", "--tuning", search)
    write_trials(search, TRIALS)
    assert main(["report", str(copied), "-q", "--tuning", str(search)]) == 0
    named = (copied / "report.html").read_text()
    write_trials(copied, TRIALS)
    assert main(["report", str(copied), "-q"]) == 0
    assert named == (copied / "report.html").read_text()
    assert "<h2>Tuning</h2>" in named
    (copied / "trials.jsonl").write_text(json.dumps({"label": 1}) + "\n")
    assert "a line is not the result of a trial" in tuning_section(load_finished(copied), None).notes[0]


# The page: nothing of the data becomes markup, nothing is loaded.

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"&'<!--"


class Page(HTMLParser):
    """The elements of a page with their attributes, and the text inside of each kind."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data

    def values(self, name: str) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get(name)) is not None]


def test_it_is_one_file_that_runs_no_foreign_script(content: ReportContent):
    shown = Page(page.render(replace(content, viewer=VIEWER)))
    assert all(href.startswith("#") for href in shown.values("href"))
    assert {tag for tag, attributes in shown.elements if "src" in attributes} == {"img"}
    assert all(source.startswith("data:image/svg+xml;base64,") for source in shown.values("src"))
    assert not {"link", "iframe", "object", "embed"} & {tag for tag, _ in shown.elements}
    assert not re.search(r"url\(\s*['\"]?(?!#)|@import", shown.texts["style"][0])
    policy = dict(shown.elements[4][1])["content"]
    digest = hashlib.sha256(shown.texts["script"][-1].encode()).digest()
    assert f"script-src 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert not [name for _, attributes in shown.elements for name in attributes if name.startswith("on")]
    ids = shown.values("id")
    assert len(set(ids)) == len(ids)
    assert {href[1:] for href in shown.values("href")} <= set(ids)
    heads = [attributes for tag, attributes in shown.elements if tag == "th"]
    optional = [heading in content.results.optional for heading in content.results.headings]
    assert ["data-optional" in head for head in heads[1 : 1 + len(optional)]] == optional
    runs = [run for row in content.results.rows for run in row["runs"]]
    assert {str(content.results.columns[0].order(run)) for run in runs} <= set(shown.values("data-order"))
    pieces = [p for sentence in content.sentences for output in sentence.outputs for p in output.pieces]
    extra, missing = ([p.text for p in pieces if p.kind == kind] for kind in ("extra", "missing"))
    assert shown.texts["ins"][1:] == extra != []  # the first explains the mark
    assert shown.texts["del"][1:] == missing != []


def test_text_of_data_stays_text(content: ReportContent):
    text = EVIL
    sentence, curves = content.sentences[0], section(content, "learning-curves")
    output = sentence.outputs[0]._replace(model=text, pieces=differences(text, "ja"))
    row, attended = content.results.rows[0] | {"title": text}, VIEWER.sentences[1]
    changed = replace(
        content,
        title=text,
        summary=[text],
        unknown=[text],
        sentences=[replace(sentence, src=text, ref=text, outputs=[output])],
        viewer=replace(VIEWER, sentences=[replace(attended, tgt=[text])]),
        sections=[replace(curves, notes=[text], drawings=[replace(curves.drawings[0], title=text)])],
        results=replace(content.results, rows=[row]),
        methods=content.methods._replace(config=f"{text}\n\tnext"),
    )
    parsed = Page(page.render(changed))
    assert Counter(tag for tag, _ in parsed.elements)["script"] == 2
    assert not parsed.values("onerror")
    data, script = parsed.texts["script"]
    assert json.loads(data)["sentences"][0]["tgt"] == [text]
    assert "alert" not in script
    assert parsed.texts["h1"] == [text]
    assert text in [heading.strip() for heading in parsed.texts["th"]]
    assert parsed.texts["dd"].count(text) == 2  # source and reference
    assert f"{text}\n\tnext" in parsed.texts["code"]
    assert parsed.values("alt") == [text]


def test_a_label_in_a_drawing_is_text():
    labels = {"a\x01\x1b[1m\uffff": Bar(1.5, 1.0, 2.0), "a $x$ & <b>": None, "c": Bar(3.0, 3.0, 3.0)}
    drawing = embed_figure(bar_plot({"speed": labels}, {}, ""), "bars", "Bars")
    svg = base64.b64decode(drawing.image.partition(",")[2]).decode()
    assert r"a\x01\x1b[1m\uffff" in svg
    assert "a $x$ &amp; &lt;b&gt;" in svg  # no formula, no markup
