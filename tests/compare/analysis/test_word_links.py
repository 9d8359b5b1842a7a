"""Files of word links: gold, of aligners, and their scores."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays

from compare import formulas
from compare.analysis.word_links import (
    AlignmentCounts,
    Gold,
    Links,
    WordPair,
    corpus_gold,
    count_proposed_links,
    link_matrix,
    parse_pharaoh,
    read_gold,
    read_links,
    read_proposed_links,
)
from data.corpus import embedded_corpus
from tests.kits.common import SHARED

BICICI = SHARED / "align-de-en-bicici"
needs_bicici = pytest.mark.skipif(not BICICI.is_dir(), reason="no ../shared/data/align-de-en-bicici here")


def test_a_score_without_denominator_is_none():
    assert list(AlignmentCounts(0, 0, 0, 0).scores().values()) == [None] * 4
    assert list(AlignmentCounts(0, 5, 0, 0).scores().values()) == [1, None, 0, None]
    assert list(AlignmentCounts(2, 5, 0, 0).scores().values()) == [1, 0, 0, 0]
    assert list(AlignmentCounts(2, 0, 0, 1).scores().values()) == [0.5, 0.5, None, None]


@settings(deadline=None)
@given(arrays(np.bool_, (2, 4, 3)), arrays(np.bool_, (4, 3)), arrays(np.bool_, (4, 3)))
def test_scores_equal_the_formulas_over_sets(proposed: np.ndarray, sure: np.ndarray, also: np.ndarray):
    """Two heads at once, compared with the formulas over sets of links."""
    s, p = ({tuple(link) for link in np.argwhere(part)} for part in (sure, sure | also))
    gold = Gold(
        pairs=(WordPair("", "", ("x",) * 3, ("y",) * 4),),
        links=(Links(frozenset(s), frozenset(p)).exchanged(),),
    )
    for links, sums in zip(proposed, gold.count(0, proposed), strict=True):
        a, counts = {tuple(link) for link in np.argwhere(links)}, AlignmentCounts(*sums.tolist())
        assert counts == (len(a), len(s), len(a & s), len(a & p))
        if a or s:
            assert counts.aer == pytest.approx(formulas.alignment_error_rate(a, s, p))
        if a and s and not (also & ~sure).any():
            assert counts.f1 == pytest.approx(1 - counts.aer)


def count_gold(gold: Gold) -> AlignmentCounts:
    """Score gold links against themselves."""
    return count_proposed_links([links.sure for links in gold.links], gold)


@pytest.mark.parametrize("line", ["0-1 2?0 3-3", "0-1:S 2-0:P 3-3", " 3-3\t0-1  2p0 ", "3?3 0-1 3-3 2?0"])
def test_every_notation_of_possible_links_is_read(line: str):
    links = parse_pharaoh(line, "here")
    assert links.sure == {(0, 1), (3, 3)}
    assert links.possible == {(0, 1), (3, 3), (2, 0)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 1 1 S\n1 2 2 P\n", r"links\.txt is in NAACL format, with one link per line \(1 1 1 S\)"),
        ("0-0\n\n", r"links\.txt has links of 2 sentences, but the text has 3: line i must link"),
        ("0-0\n0-x\n0-0\n", r"links\.txt, line 2: '0-x' is not a link"),
    ],
)
def test_a_malformed_file_is_reported_in_one_line(tmp_path: Path, content: str, message: str):
    path = tmp_path / "links.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        read_links(path, 3)
    assert "\n" not in str(error.value)


def gold_of(folder: Path, src: str, tgt: str, links: str, **options: int) -> Gold:
    """Write the three files of gold links, and read them."""
    for name, text in (("gold", links), ("src", src), ("tgt", tgt)):
        (folder / name).write_text(text)
    return read_gold(folder / "gold", folder / "src", folder / "tgt", **options)


@pytest.mark.parametrize("first", [0, 1])
def test_links_outside_the_sentence_are_warned_of_and_kept(
    tmp_path: Path, first: int, caplog: pytest.LogCaptureFixture
):
    """Sentences of two and three words: the last link of the first two is out of range, one of them sure."""
    lines = [f"{first}-{2 + first} {2 + first}-{first}", f"{1 + first}?{first} {first}?{3 + first}"]
    lines.append(f"{first}-{first}")
    gold = gold_of(tmp_path, "a b\n" * 3, "x y z\n" * 3, "\n".join(lines), first_word=first)
    matrices = [link_matrix(links.possible, (2, 3)) for links in gold.links]
    assert [np.argwhere(matrix).tolist() for matrix in matrices] == [[[2, 0]], [[0, 1]], [[0, 0]]]
    assert caplog.messages[0].startswith(
        f"{tmp_path / 'gold'}: 2 of 5 links are outside their sentences (the first: sentence 1)"
    )
    perfect = [gold.count(number, link_matrix(links.sure, (2, 3))) for number, links in enumerate(gold.links)]
    total = AlignmentCounts(*np.sum(perfect, axis=0).tolist())
    assert total == AlignmentCounts(proposed=2, sure=3, sure_matches=2, possible_matches=2)


def test_gold_may_be_of_the_other_direction(tmp_path: Path):
    """Two source and three target words; a possible link does not become sure."""
    gold = gold_of(tmp_path, "a b\n", "x y z\n", "1-0 2?1\n", reverse=True)
    assert gold.links == (({(0, 1)}, {(0, 1), (1, 2)}),)


@needs_bicici
def test_published_gold_links_are_read(caplog: pytest.LogCaptureFixture):
    """1,233 links, one of which (sentence 63) is out of range."""
    gold = read_gold(BICICI / "gold.talp.gz", BICICI / "test.de.gz", BICICI / "test.en.gz")
    assert all("(the first: sentence 63)" in message for message in caplog.messages)
    assert count_gold(gold) == AlignmentCounts(1_233, 1_233, 1_233, 1_233)
    pairs = zip(gold.pairs, gold.links, strict=True)
    inside = [gold.count(n, link_matrix(links.sure, pair.size)) for n, (pair, links) in enumerate(pairs)]
    assert np.sum(inside, axis=0).tolist() == [1_232, 1_233, 1_232, 1_232]
    assert (5, 3) in gold.links[1].sure


def test_the_embedded_gold_links_words_and_punctuation():
    gold = corpus_gold(embedded_corpus(train=10), "valid")
    assert count_gold(gold).aer == 0
    for pair, links in zip(gold.pairs, gold.links, strict=True):
        assert (pair.src_words[-1], pair.tgt_words[-1]) in {(".", "."), ("?", "?")}
        assert (len(pair.src_words) - 1, len(pair.tgt_words) - 1) in links.sure


SRC, TGT = "le chien rouge\nil dort\n", "the red dog\nhe is asleep\n"
LINKS = ({(0, 0), (1, 2), (2, 1)}, {(0, 0), (1, 1), (1, 2)})


@pytest.fixture
def gold(tmp_path: Path) -> Gold:
    return gold_of(tmp_path, SRC, TGT, "0-0 1-2 2?1\n0-0 1-2 1?1\n")


@pytest.mark.parametrize(
    "content",
    [
        "0-0 1-2 2-1\n0-0 1-1 1-2\n",
        "0-0 1-2 2-1 ||| -3.5\n0-0 1-1 1-2 ||| -2\n",
    ],
)
def test_scores_of_fast_align_are_ignored(gold: Gold, tmp_path: Path, content: str):
    path = tmp_path / "links"
    path.write_text(content)
    assert read_proposed_links(path, gold) == LINKS


def test_scores_are_those_of_the_formula(gold: Gold):
    """|A| = 6, |S| = 4, |A and S| = 4, |A and P| = 6."""
    counts = count_proposed_links(LINKS, gold)
    assert counts == AlignmentCounts(proposed=6, sure=4, sure_matches=4, possible_matches=6)
    assert math.isclose(counts.aer, 1 - (4 + 6) / (6 + 4), abs_tol=1e-12)
    assert count_proposed_links([{(0, 1)}, set()], gold).aer == 1


def test_links_outside_the_sentence_count(gold: Gold, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "links"
    path.write_text("0-0 1-2 2-1 3-3\n0-0 2-2\n")
    assert count_proposed_links(read_proposed_links(path, gold), gold).proposed == 6
    assert caplog.messages[-1].startswith(f"{path}: 2 of 6 links are outside")
    also = gold_of(tmp_path, "a b\n", "x\n", "0-0 1-4\n")  # gold has one, too: scores are those of sets
    assert count_proposed_links([{(0, 0), (1, 4)}], also) == AlignmentCounts(2, 2, 2, 2)
