"""Attention of one sentence: words from pieces, figures, and the viewer."""

import copy
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from compare.attention import heatmap
from compare.attention.weights import (
    AttentionHead,
    SentenceAttention,
    group_pieces,
    render_viewer,
    with_means,
)
from data.corpus import Pairs
from data.files import warn_once
from data.vocabulary import EOS, SPECIALS, build_pair, split_words

LINES = ("Don't stop, she said.", "Zwei Kühe schlafen!", "a well-known cat (and a dog)")


@pytest.mark.parametrize(
    ("pieces", "words", "group"),
    [
        (["▁The", "▁cat", "s", ".", "<eos>"], ["The", "cats", ".", "<eos>"], [0, 1, 1, 2, 3]),
        (["▁", "Kü", "he"], ["Kühe"], [0, 0, 0]),
        (["▁don", "'", "t"], ["don't"], [0, 0, 0]),
        (["▁a", "?!", "▁b"], ["a", "?!", "b"], [0, 1, 2]),  # a piece of two marks is not divided
        (["▁<", "0x41", ">"], ["<", "0x41", ">"], [0, 1, 2]),
        (["▁5", "<0xE2>", "<0x82>", "<0xAC>", "▁x"], ["5", "€", "x"], [0, 1, 1, 1, 2]),
        (["▁x", "<0xE2>", "▁y"], ["x", "\ufffd", "y"], [0, 1, 2]),  # a broken character
        (["<unk>", "<unk>", "<eos>"], ["<unk>", "<unk>", "<eos>"], [0, 1, 2]),
        (["▁", "<eos>"], ["▁", "<eos>"], [0, 1]),  # nothing but a space stays visible
        (["▁我", "喜欢", "猫", "。"], ["我", "喜欢", "猫", "。"], [0, 1, 2, 3]),  # no space divides them
        ([], [], []),
    ],
)
def test_subwords_are_joined(pieces: list[str], words: list[str], group: list[int]):
    assert group_pieces("unigram", pieces) == (words, group)


@pytest.mark.parametrize("kind", ["words", "characters", "unigram", "bpe"])
def test_the_words_are_those_of_the_text(kind: str):
    size = {"unigram": 320, "bpe": 320}.get(kind, 100)
    vocabulary = build_pair(Pairs(LINES, LINES), kind=kind, size=size).src
    for text in (*LINES, "Unseen: 5 €, don't – ok?"):
        labels = vocabulary.labels(text)
        assert len(labels) == len(vocabulary.encode(text))
        words, group = group_pieces(kind, [*labels, SPECIALS[EOS]])
        assert words == [*split_words(text), "<eos>"]  # the user's words, never <unk>
        assert group == sorted(group)


SRC, TGT = ["▁Zwei", "▁Kü", "he", "<eos>"], ["▁two", "▁co", "w", "s", "<eos>"]
WORDS = (["Zwei", "Kühe", "<eos>"], ["two", "cows", "<eos>"])
EVERY = {"encoder.0": 2, "decoder.0": 2, "cross.0": 2, "encoder.1": 2, "decoder.1": 2, "cross.1": 2}


def random_attention(layers: dict[str, int], label: str = "rnn") -> SentenceAttention:
    """Weights of the layers named, with so many heads each, as distributions."""
    rng = np.random.default_rng(0)
    sizes = {"cross": (5, 4), "encoder": (4, 4), "decoder": (5, 5)}
    shapes = {name: (heads, *sizes[name.split(".")[0]]) for name, heads in layers.items()}
    weights = {name: rng.dirichlet(np.ones(shape[2]), shape[:2]) for name, shape in shapes.items()}
    return SentenceAttention(
        source="Zwei Kühe",
        translation="two cows",
        src=SRC,
        tgt=TGT,
        kinds=("bpe", "bpe"),
        weights={name: value.astype(np.float32) for name, value in weights.items()},
        label=label,
    )


def test_weights_of_words_are_sums_over_source_and_means_over_target():
    attention = random_attention({"cross": 1, "encoder": 1, "decoder": 1})
    words = attention.words()
    assert (words.src, words.tgt) == WORDS
    w = attention.weights["cross"][0].astype(float)
    by_hand = [
        [w[0, 0], w[0, 1] + w[0, 2], w[0, 3]],
        [w[1:4, 0].mean(), (w[1:4, 1] + w[1:4, 2]).mean(), w[1:4, 3].mean()],
        [w[4, 0], w[4, 1] + w[4, 2], w[4, 3]],
    ]
    np.testing.assert_allclose(words.weights["cross"][0], by_hand, rtol=1e-6)
    # The columns are <bos> and the pieces before.
    row = attention.weights["decoder"][0].astype(float)[1:4].mean(axis=0)
    np.testing.assert_allclose(words.weights["decoder"][0][1], [row[0], row[1], row[2:].sum()], rtol=1e-6)
    again = words.words()
    for name, weights in words.weights.items():
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
        np.testing.assert_allclose(again.weights[name], weights, rtol=1e-6)


def test_means_of_heads_by_hand():
    one, two = np.array([[[1.0]], [[3.0]]]), np.array([[[8.0]]])
    heads, weights = with_means({"cross.0": one, "cross.1": two})
    names = ["layer 1, head 1", "layer 1, head 2", "layer 2, head 1", "layer 1, mean", "mean of all heads"]
    assert list(map(str, heads)) == names
    assert weights.ravel().tolist() == [1, 3, 8, 2, 4]
    assert list(map(str, with_means({"cross": two})[0])) == ["head 1"]
    assert str(AttentionHead("encoder.1", 0)) == "encoder layer 2, head 1"


def test_a_figure_has_every_head_with_named_axes_and_the_sentence():
    attention = random_attention({"cross.0": 2, "cross.1": 2})
    figure = attention.plot()
    heads = [f"layer {layer}, {head}" for layer in (1, 2) for head in ("head 1", "head 2", "mean")]
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == heads
    assert figure.texts[0].get_text() == "rnn\nZwei Kühe\n→ two cows"
    words = attention.words()
    for index, axes in enumerate(figure.axes[:-1]):
        layer, head = words.weights[f"cross.{index // 3}"], index % 3
        expected = layer[head] if head < 2 else layer.mean(axis=0)
        np.testing.assert_array_equal(axes.images[0].get_array(), expected)
        assert axes.images[0].get_clim() == (0, 1)  # maps of two models can be laid side by side
        assert [label.get_text() for label in axes.get_xticklabels()] == words.src
        assert [label.get_text() for label in axes.get_yticklabels()] == ([] if head else words.tgt) or head
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("source", "" if head else "translation")
    assert len(random_attention(EVERY).plot().axes) == 2 * 3 + 1  # self-attention is in the viewer


def test_maps_do_not_overlap():
    boxes = [axes.get_position() for axes in random_attention(EVERY).plot().axes]
    for number, box in enumerate(boxes):
        assert 0 <= box.x0 < box.x1 <= 1
        assert 0 <= box.y0 < box.y1 <= 1
        assert not any(box.overlaps(other) for other in boxes[:number])


def test_a_model_without_attention_is_refused():
    with pytest.raises(ValueError, match="rnn has no attention to the source"):
        random_attention({"encoder": 1}).plot()
    assert random_attention({"cross": 1}).plot()._repr_png_().startswith(b"\x89PNG")


def test_the_viewer_is_one_page_with_every_head_of_every_model():
    one, other = random_attention(EVERY, "transformer"), random_attention({}, "lstm")
    page = render_viewer(one.source, [one, other])
    one = one.words()
    scripts = re.findall(r'<script type="application/json">(.*?)</script>', page)
    data = [json.loads(view) for view in scripts]
    assert [view["models"][0]["name"] for view in data] == [
        "Attention to the source",
        "Self-attention within the source",
        "Self-attention within the translation",
    ]
    model, sentence = data[0]["models"][0], data[0]["sentences"][0]
    assert model["heads"][3:] == ["layer 2, head 2", "layer 1, mean", "layer 2, mean", "mean of all heads"]
    assert model["chosen"] == 6
    assert (sentence["src"], sentence["tgt"]) == WORDS
    axes = [(view["sentences"][0]["tgt"], view["sentences"][0]["src"]) for view in data]
    assert axes[1:] == [(WORDS[0], WORDS[0]), (WORDS[1], ["<bos>", "two", "cows"])]
    hundredths = np.array(sentence["weights"][0])
    expected = np.concatenate([one.weights["cross.0"], one.weights["cross.1"]])
    assert np.abs(hundredths[:4].reshape(expected.shape) / 100 - expected).max() <= 0.0051
    assert "This model has no attention." in page
    assert "<h2>lstm</h2>" in page
    assert not re.search(r"(src|href)=|@import|url\(", page)  # nothing is loaded


def test_a_notebook_gets_the_page_in_a_frame_with_hostile_text_as_text():
    evil = "</script><img src=x onerror=alert(1)>\" '"
    attention = random_attention({"cross": 1}, evil)
    html = attention._repr_html_()
    assert html.startswith('<iframe srcdoc="')
    assert html.count("<") == 2  # the frame's own tags
    page = unescape(re.match(r'<iframe srcdoc="([^"]*)"', html)[1])
    assert page == attention.to_html()
    assert "<img" not in page


def test_characters_of_other_scripts_get_a_font_that_has_them_or_one_warning_a_script(monkeypatch, caplog):
    """Fonts that come with matplotlib stand for those of a machine: STIX has what DejaVu Sans lacks."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = [str(folder / name) for name in ("cmr10.ttf", "STIXGeneral.ttf")]
    monkeypatch.setattr(heatmap.font_manager, "findSystemFonts", lambda: fonts)
    monkeypatch.setattr(heatmap.font_manager, "fontManager", copy.copy(heatmap.font_manager.fontManager))
    assert heatmap.find_fonts(frozenset("ab")) == ["DejaVu Sans"]
    assert heatmap.find_fonts(frozenset("a\u0359")) == ["DejaVu Sans", "STIXGeneral"]
    warn_once.cache_clear()  # another test may have drawn such characters
    attention = replace(random_attention({"cross": 1}), source="雨 雲", src=["雨", "雲", "ab", "<eos>"])
    for _ in range(2):
        assert heatmap.render_figure(attention.plot(), format="png").startswith(b"\x89PNG")
    (message,) = caplog.messages
    assert "CJK" in message
    assert "fonts-noto-cjk" in message
