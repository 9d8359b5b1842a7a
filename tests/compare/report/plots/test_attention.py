"""`plot RUN --sentence`: the attention of finished runs for a sentence of the user's own."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import compare
from compare import draw_attention, load_model
from compare.cli import main
from compare.results.store import read_result, save_result
from tests.kits.cli import Refusal

SENTENCE = "small unheard cat"


def plot(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[Path]:
    """The files that the command names."""
    assert main(["plot", *map(str, arguments), "-q"]) == 0
    return [Path(line) for line in capsys.readouterr().out.splitlines()]


def test_a_sentence_has_figures_of_its_own_with_the_users_words(
    copy: Path, capsys: pytest.CaptureFixture[str]
):
    files = plot(capsys, copy, "--sentence", SENTENCE)
    assert [path.name.rsplit("-", 1)[0] for path in files] == [
        *["attention-luong-small-unheard-cat"] * 2,
        *["attention-transformer-small-unheard-cat"] * 2,
    ]
    svg = files[1].read_text()
    assert all(
        f">{word}<" in svg for word in ("luong", SENTENCE, "small", "unheard", "source", "translation")
    )
    assert "unk" not in svg.split("translation")[0]  # not among the words of the source
    heads = files[3].read_text()
    assert all(f">cross.0 {head}<" in heads for head in ("head 0", "head 1", "mean"))
    before = {path: path.read_bytes() for path in files}
    other = plot(capsys, copy, "attention", "--sentence", "small unheard cat .", "--model", "luong")
    assert len(other) == 2
    assert not set(other) & set(files)
    assert all(path.read_bytes() == content for path, content in before.items())  # nothing is replaced


def test_one_file_in_the_format_of_its_ending(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for name, start in (
        ("a.pdf", b"%PDF"),
        ("b.png", b"\x89PNG"),
        ("c.svg", b"<?xml"),
        ("d.html", b"<!DOCTYPE"),
    ):
        out = tmp_path / "new" / name
        assert plot(capsys, finished / "luong-seed1", "attention", "--sentence", SENTENCE, "--out", out) == [
            out
        ]
        assert out.read_bytes().startswith(start)
    assert len(list((tmp_path / "new").iterdir())) == 4
    page = tmp_path / "all.html"
    assert plot(capsys, finished, "--sentence", SENTENCE, "--out", page) == [page]
    assert "<h2>luong</h2>" in page.read_text()
    assert "<h2>transformer</h2>" in page.read_text()


def test_a_test_line_and_a_run_by_name(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    line = (finished / "test.src").read_text().splitlines()[1]
    arguments = ("--line", "2", "--model", "luong-seed1", "--format", "svg,html", "--out", tmp_path)
    page, svg = plot(capsys, finished / "luong-seed1", *arguments)
    assert (page.name, svg.name) == ("attention-luong-seed1-line2.html", "attention-luong-seed1-line2.svg")
    assert all(f">{word}<" in svg.read_text() for word in [*line.split(), "luong-seed1"])


def test_a_model_without_attention_is_left_out_unless_it_is_the_only_one(copy: Path, monkeypatch, tmp_path):
    attend = compare.Translator.attend

    def without(self: compare.Translator, line: str):
        found = attend(self, line)
        return found if self.label == "luong" else type(found)(**{**vars(found), "weights": {}})

    monkeypatch.setattr(compare.Translator, "attend", without)
    assert len(draw_attention(copy, SENTENCE, formats=["svg"], out=tmp_path)) == 1
    with pytest.raises(ValueError, match="transformer has no attention to the source"):
        draw_attention(copy, SENTENCE, model="transformer", out=tmp_path)


def test_nothing_is_ignored(finished: Path, published_like: Path, refusal: Refusal, tmp_path: Path):
    sentence = ("--sentence", SENTENCE)
    cases = {
        ("--sentence", " "): "the sentence must be one line that is not empty, found ' '",
        ("--sentence", "a\nb"): r"the sentence must be one line that is not empty, found 'a\nb'",
        ("--format", "pdf"): "--format has no effect on all figures together: name one; leave it out",
        ("length", *sentence): "--sentence has no effect on the figure length; leave it out",
        ("length", "--line", "2"): "--line has no effect on the figure length; leave it out",
        ("list", "--out", "x"): "--out has no effect on the list of figures; leave it out",
        (*sentence, "--line", "2"): "--sentence and --line both say what to draw: leave one of them out",
        (
            *sentence,
            "--set",
            "data.root=x",
        ): "--set has no effect on the attention of a sentence; leave it out",
        ("attention", "--line", "0"): f"line 0 is not in the test set of {finished}, which has 8 lines",
        (*sentence, "--model", "luon"): "no finished model is labelled 'luon'; did you mean 'luong'?",
        (*sentence, "--out", "x.jpg"): "no format 'jpg': choose from png, svg, pdf, html",
        (*sentence, "--out", "x.png"): "x.png can show one model, but there are 2: choose one of luong, "
        "transformer with --model, or a file that ends in .html, which shows all",
        (*sentence, "--out", "x.pdf", "--format", "png"): "--out x.pdf says the format already: leave out "
        "--format",
        ("atention",): "no figure 'atention'; did you mean 'attention'?",
    }
    for arguments, message in cases.items():
        assert refusal("plot", finished, *arguments) == message
    assert "has no weights" in refusal("plot", published_like, *sentence, "--out", tmp_path)


@pytest.fixture
def published_like(finished: Path, tmp_path: Path) -> Path:
    """A run without its weights, as in a published folder."""
    run = Path(shutil.copytree(finished / "luong-seed1", tmp_path / "exp" / "luong-seed1"))
    shutil.rmtree(run / "checkpoints")
    return run


def test_a_run_that_is_not_finished_is_refused(published_like: Path):
    save_result(published_like, replace(read_result(published_like), status="failed"))
    with pytest.raises(ValueError, match="holds no finished run"):
        draw_attention(published_like, SENTENCE)


def test_attention_in_the_list_of_figures(finished: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["plot", str(finished), "list"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("attention ")


def test_a_translator_names_its_model(finished: Path):
    found = load_model(finished / "luong-seed1").attend(SENTENCE)
    assert found.label == "luong"
    assert found.src == ["small", "unheard", "cat", "<eos>"]
    assert found.plot().texts[0].get_text().startswith(f"luong\n{SENTENCE}")
