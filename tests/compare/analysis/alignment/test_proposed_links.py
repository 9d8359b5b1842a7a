"""Links of word aligners: output formats, directions, symmetrisation and scores."""

import math
from pathlib import Path

import pytest

from compare.analysis.gold_alignments import AlignmentCounts, Gold, Link, read_gold
from compare.analysis.proposed_links import (
    SYMMETRISATIONS,
    count_proposed_links,
    read_proposed_links,
    symmetrise,
)

SRC, TGT = "le chien rouge\nil dort\n", "the red dog\nhe is asleep\n"
LINKS = ({(0, 0), (1, 2), (2, 1)}, {(0, 0), (1, 1), (1, 2)})


def giza(first: str = "the red dog\nNULL ({ }) le ({ 1 }) chien ({ 3 }) rouge ({ 2 })") -> str:
    """Return a file of GIZA++ for the pairs, its second pair first."""
    head = "# Sentence pair ({}) source length 3 target length 3 alignment score : 1e-05\n"
    second = "he is asleep\nNULL ({ }) il ({ 1 }) dort ({ 2 3 }) \n"
    return head.format(2) + second + head.format(1) + first + "\n"


BACKWARD_GIZA = (
    "# Sentence pair (1) source length 3 target length 3 alignment score : 1e-05\n"
    "Le chien rouge\nNULL ({ }) the ({ 1 }) red ({ 3 }) dog ({ 2 }) \n"
    "# Sentence pair (2) source length 3 target length 2 alignment score : 1e-05\n"
    "il dort\nNULL ({ }) he ({ 1 }) is ({ 2 }) asleep ({ 2 }) \n"
)


@pytest.fixture
def gold(tmp_path: Path) -> Gold:
    for name, text in (("src", SRC), ("tgt", TGT), ("gold", "0-0 1-2 2?1\n0-0 1-2 1?1\n")):
        (tmp_path / name).write_text(text)
    return read_gold(tmp_path / "gold", tmp_path / "src", tmp_path / "tgt")


@pytest.mark.parametrize(
    ("content", "settings"),
    [
        ("0-0 1-2 2-1\n0-0 1-1 1-2\n", {}),
        ("0-0 1-2 2-1 ||| -3.5\n0-0 1-1 1-2 ||| -2\n", {}),
        ("1-1 2-3 3-2\n1-1 2-2 2-3\n", {"first_word": 1}),
        ("0-0 2-1 1-2\n0-0 1-1 2-1\n", {"reverse": True}),
        ("1 1 1\n1 2 3\n1 3 2\n2 1 1\n2 2 2\n2 2 3\n", {"first_word": 1}),
        (giza(), {}),
        (BACKWARD_GIZA, {}),
        (BACKWARD_GIZA, {"first_word": 1, "reverse": True}),
    ],
    ids=[
        "pharaoh",
        "scores",
        "from 1",
        "reversed",
        "naacl",
        "giza",
        "giza backward",
        "giza ignores settings",
    ],
)
def test_every_format_and_direction_gives_the_same_links(
    gold: Gold, tmp_path: Path, content: str, settings: dict[str, int]
):
    path = tmp_path / "links"
    path.write_text(content)
    links, outside = read_proposed_links(path, gold, **settings)
    assert links == LINKS
    assert outside == ""


def test_scores_are_those_of_the_formula(gold: Gold):
    """|A| = 6, |S| = 4, |A and S| = 4, |A and P| = 6."""
    counts = count_proposed_links(LINKS, gold)
    assert counts == AlignmentCounts(proposed=6, sure=4, sure_matches=4, possible_matches=6)
    assert math.isclose(counts.aer, 1 - (4 + 6) / (6 + 4), abs_tol=1e-12)
    assert count_proposed_links([{(0, 1)}, set()], gold).aer == 1


def test_links_outside_the_sentence_are_wrong_and_reported_with_counts(gold: Gold, tmp_path: Path):
    path = tmp_path / "links"
    path.write_text("0-0 1-2 2-1 3-3\n0-0 2-2\n")
    links, outside = read_proposed_links(path, gold)
    assert outside == (
        f"{path}: 2 of 6 links, in 2 of 2 sentences, are to words that the sentence does not have (the "
        "first: sentence 1, 3-3 counted from 0, with 3 source and 3 target words)"
    )
    assert count_proposed_links(links, gold).proposed == 6


def test_a_link_outside_that_gold_has_too_matches(tmp_path: Path):
    """Scores are those of sets, as of published scripts."""
    for name, text in (("src", "a b\n"), ("tgt", "x\n"), ("gold", "0-0 1-4\n")):
        (tmp_path / name).write_text(text)
    gold = read_gold(tmp_path / "gold", tmp_path / "src", tmp_path / "tgt")
    assert count_proposed_links([{(0, 0), (1, 4)}], gold) == AlignmentCounts(2, 2, 2, 2)
    assert count_proposed_links([{(0, 0)}], gold) == AlignmentCounts(1, 2, 1, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            giza("the red cat\nNULL ({ }) le ({ 1 }) chien ({ 3 }) rouge ({ 2 })"),
            r"sentence pair 1 is not that",
        ),
        (
            giza("the red dog\nle ({ 1 }) chien ({ 3 }) rouge ({ 2 })"),
            r"line 6: expected words with their links",
        ),
        (
            giza("the red dog\nNULL ({ }) le ({ 1 }) chien ({ x })"),
            r"line 6: expected words with their links",
        ),
        (giza().rsplit("\n", 2)[0], r"line 4: expected the three lines of a sentence pair"),
        (
            giza().split("# Sentence pair (1)")[0],
            r"has 1 sentence pairs numbered up to 2, but the text has 2",
        ),
        ("0-0\n", r"has links of 1 sentences, but the text has 2"),
        ("0-0\n0-x\n", r"line 2: '0-x' is not a link"),
    ],
)
def test_files_of_another_text_or_form_are_refused(gold: Gold, tmp_path: Path, content: str, message: str):
    path = tmp_path / "links"
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"links.*{message}") as error:
        read_proposed_links(path, gold)
    assert "\n" not in str(error.value)


# Forward links one source word per target word, backward ones the other way round.
FORWARD: frozenset[Link] = frozenset({(0, 0), (1, 1), (1, 2), (4, 4)})
BACKWARD: frozenset[Link] = frozenset({(0, 0), (1, 1), (2, 2), (3, 4), (6, 5)})


def test_symmetrisations_match_hand_computation():
    """Growing adds 1-2 (a neighbour, its target is free), which leaves 2-2 with a free source: it follows.

    4-4 and 3-4 touch no link of the alignment. 4-4, forward, is added at the end, and takes the target of
    3-4. 6-5 has two free words.
    """
    grown = {(0, 0), (1, 1), (1, 2), (2, 2), (4, 4), (6, 5)}
    assert SYMMETRISATIONS["grow-diag-final-and"](FORWARD, BACKWARD) == grown
    assert SYMMETRISATIONS["grow-diag-final-and"](BACKWARD, FORWARD) == grown - {(4, 4)} | {(3, 4)}
    assert SYMMETRISATIONS["intersection"](FORWARD, BACKWARD) == {(0, 0), (1, 1)}
    assert SYMMETRISATIONS["union"](FORWARD, BACKWARD) == FORWARD | BACKWARD


def test_a_link_that_is_added_ahead_is_visited_in_the_same_pass():
    """By hand, as Moses iterates over the set that it adds to: 1-1, 2-2 and 2-3 follow from 0-0 one by one.

    So 4-3 finds both of its words taken; with the links as they were at the start of the pass, it would come
    before 2-3, from 4-4.
    """
    forward = frozenset({(0, 0), (1, 1), (2, 2), (4, 3), (4, 4)})
    backward = frozenset({(0, 0), (2, 3), (4, 4)})
    grown = {(0, 0), (1, 1), (2, 2), (2, 3), (4, 4)}
    assert SYMMETRISATIONS["grow-diag-final-and"](forward, backward) == grown


def test_growing_needs_a_word_without_link():
    """0-1 is a neighbour of 0-0 and 1-1, both of whose words have links."""
    base = frozenset({(0, 0), (1, 1)})
    assert SYMMETRISATIONS["grow-diag-final-and"](base | {(0, 1)}, base) == base


def test_a_text_is_symmetrised_sentence_by_sentence():
    combined = symmetrise({"f": (FORWARD, BACKWARD), "b": (BACKWARD, BACKWARD)})
    assert combined["f + b: intersection"] == (FORWARD & BACKWARD, BACKWARD)
    assert list(combined) == [f"f + b: {name}" for name in SYMMETRISATIONS]
