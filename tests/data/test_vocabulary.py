"""Vocabularies of every kind: encoding and decoding, building from train only, and atomic saving."""

import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.corpus import Pairs
from data.vocabulary import (
    BOS,
    CONTROL,
    EOS,
    JOINER,
    KINDS,
    PAD,
    SPECIALS,
    UNK,
    CountedVocabulary,
    Vocabulary,
    build_pair,
    build_vocabulary,
    join_words,
    load_pair,
    mark_words,
    split_words,
    unmarked,
)

LINES = (
    "Ein Mann, der schläft, sagt nichts.",
    "A man who sleeps says nothing (at all).",
    "Der Hund rennt - er rennt schnell!",
    "Don't stop: it's 12:30 o'clock.",
    "Die Frauen essen große, rote Äpfel.",
    "The well-known women eat big red apples.",
)
SIZES = {"words": 100, "characters": 100, "given": 100, "unigram": 320, "bpe": 360}
ANY_LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))
BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\x00\t\x1b\x7f\x9f"
MARKS = st.text("▁␛01 \x00\t\r▅⁇<s>/unk0x4A￭\u2028", max_size=12)


@pytest.fixture(scope="module")
def built() -> dict[str, Vocabulary]:
    return {kind: build_vocabulary(kind, LINES, size=SIZES[kind]) for kind in KINDS}


@pytest.fixture(scope="module")
def odd() -> dict[str, Vocabulary]:
    """Vocabularies of text with control characters and line separators in it."""
    lines = [*LINES, *(f"a{character}b {character} {character}" for character in BREAKS)]
    return {kind: build_vocabulary(kind, lines, size=SIZES[kind]) for kind in KINDS}


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@settings(max_examples=300, deadline=None)
@given(text=ANY_LINE | MARKS)
@example(text=" ▁ ␛␛1  \x00 ▁")
@example(text="\ufeff\ufb01 e\u0301 \u3000 \u00a0 \U0001f600")
def test_subwords_are_lossless_for_any_text(built: dict[str, Vocabulary], kind: str, text: str) -> None:
    """Except for control characters and line separators, which become spaces."""
    ids = built[kind].encode(text)
    assert UNK not in ids
    assert built[kind].decode(ids) == CONTROL.sub(" ", text)


def assert_one_line(text: str) -> None:
    assert len(f"{text}.".splitlines()) == 1
    assert not [character for character in text if unicodedata.category(character) == "Cc"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_character_breaks_a_line(odd: dict[str, Vocabulary], kind: str) -> None:
    """Those beyond ASCII need two or three pieces of one byte each."""
    for character in BREAKS:
        text = odd[kind].decode(odd[kind].encode(f"a{character}b"))
        assert_one_line(text)
        if kind != "words":  # these lose white space that no word needs
            assert text == "a b"


def test_all_that_breaks_a_line_is_known() -> None:
    for character in map(chr, range(sys.maxunicode + 1)):
        ends_line = len(f"a{character}b".splitlines()) > 1
        assert bool(CONTROL.match(character)) == (unicodedata.category(character) == "Cc" or ends_line)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_ids_decode_to_one_line(odd: dict[str, Vocabulary], kind: str, data: st.DataObject) -> None:
    """A model can write any ids; the subwords' ids of bytes are drawn more often than other ids."""
    any_id = st.integers(0, len(odd[kind]) - 1)
    ids = data.draw(st.lists(any_id | st.integers(0, min(len(odd[kind]), 260) - 1), max_size=40))
    assert_one_line(odd[kind].decode(ids))


@pytest.mark.parametrize("kind", KINDS)
def test_many_lines_are_encoded_like_each_alone(built: dict[str, Vocabulary], kind: str) -> None:
    lines = [f"{line} {i}▁␛" for i in range(50) for line in LINES]
    assert built[kind].encode_all(iter(lines)) == [built[kind].encode(line) for line in lines]
    assert built[kind].encode_all([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_known_text_survives_and_decoding_stops_at_eos(built: dict[str, Vocabulary], kind: str) -> None:
    vocabulary = built[kind]
    for line in LINES:
        ids = vocabulary.encode(line)
        assert min(ids) > max(PAD, UNK, BOS, EOS)
        assert max(ids) < len(vocabulary)
        assert vocabulary.decode(ids) == line
    ids = vocabulary.encode(LINES[0])
    framed = [BOS, PAD, *ids[:3], PAD, *ids[3:], EOS, *vocabulary.encode(LINES[1])]
    assert vocabulary.decode(framed) == LINES[0]
    assert vocabulary.decode([EOS, *ids]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_one_label_per_id(built: dict[str, Vocabulary], kind: str) -> None:
    vocabulary = built[kind]
    ids = vocabulary.encode(LINES[3])
    labels = vocabulary.pieces([*ids, EOS])
    assert len(labels) == len(ids) + 1
    assert labels[-1] == SPECIALS[EOS]
    if kind in ("words", "given"):
        assert labels[:-1] == (split_words(LINES[3]) if kind == "words" else LINES[3].split())
    else:
        assert "".join(labels[:-1]).removeprefix("▁") == LINES[3].replace(" ", "▁")


def test_words_are_numbered_by_count_and_capped() -> None:
    lines = ["b b b a a c", "d"]
    vocabulary = build_vocabulary("words", lines, size=7)
    assert vocabulary.encode("b a c d z") == [4, 5, 6, UNK, UNK]
    assert len(build_vocabulary("words", lines, size=100, min_count=2)) == 6
    assert vocabulary.decode([4, UNK]) == "b <unk>"
    assert isinstance(vocabulary, CountedVocabulary)
    assert "z" not in vocabulary._vocab.stoi, "torchtext inserts a word that it is asked for by index"


def test_text_that_looks_like_a_special_is_only_text() -> None:
    for kind in ("words", "characters"):
        vocabulary = build_vocabulary(kind, ["<eos> <pad> <unk> <bos>"], size=100)
        ids = vocabulary.encode("<eos> <pad>")
        assert not {PAD, UNK, BOS, EOS} & set(ids)
        assert vocabulary.decode(ids) == "<eos> <pad>"
    vocabulary = build_vocabulary("given", ["a b"], size=100)
    assert vocabulary.encode("a <eos> <bos> <pad> b") == [4, UNK, UNK, UNK, 5]


@pytest.mark.parametrize("line", ["rid@@ ing a hor@@ se .", "▁rid ing ▁a ▁hor se ▁."])
def test_given_pieces_are_the_tokens_and_are_joined(line: str) -> None:
    vocabulary = build_vocabulary("given", [line], size=100)
    ids = vocabulary.encode(line)
    assert (vocabulary.pieces(ids), vocabulary.decode(ids)) == (line.split(), "riding a horse .")


@settings(deadline=None)
@given(text=ANY_LINE | st.text(f"{JOINER} a.-'"))
def test_marked_words_join_to_the_text_with_single_spaces(text: str) -> None:
    assert join_words(mark_words(text)) == " ".join(text.split())
    assert [unmarked(token) for token in mark_words(text)] == split_words(text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("joint", [True, False])
def test_a_pair_is_built_from_train_and_survives_saving(kind: str, joint: bool, tmp_path: Path) -> None:
    train = Pairs(LINES[::2], LINES[1::2])
    size = 310 if joint else 296
    pair = build_pair(train, kind=kind, size=size, joint=joint)
    again = build_pair(train, kind=kind, size=size, joint=joint)
    other_train = Pairs(LINES, (*LINES[:5], LINES[0])) if joint else Pairs(train.tgt, train.src)
    other = build_pair(other_train, kind=kind, size=size, joint=joint)
    pair.save(tmp_path)
    loaded = load_pair(tmp_path)
    for side, saved in zip(loaded, pair, strict=True):
        assert (side.kind, side.pieces(range(len(side)))) == (kind, saved.pieces(range(len(saved))))
    assert loaded.joint == pair.joint == joint
    assert pair.content_hash == again.content_hash == loaded.content_hash != other.content_hash
    assert loaded.src.encode(LINES[1]) == pair.src.encode(LINES[1])
    assert loaded.tgt.encode(LINES[0]) == pair.tgt.encode(LINES[0])
    if kind == "words":
        assert (UNK in pair.src.encode(LINES[1])) != joint


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_an_unreachable_size_is_reduced_with_a_note(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    largest = build_vocabulary(kind, LINES, size=50_000)
    note = f"this text allows no {kind} vocabulary of size 50000: "
    note += f"using the largest possible vocabulary.size, {len(largest)}"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("WARNING", note)]
    caplog.clear()
    asked = build_vocabulary(kind, LINES, size=len(largest))
    assert not caplog.records
    assert asked.to_json() == largest.to_json()
    assert len(build_vocabulary(kind, iter(LINES), size=len(largest) + 1)) == len(largest)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("lines", [["a"], ["a b"], ["ja"] * 50, ["one", "word", "per", "line"]])
def test_the_smallest_texts_have_a_vocabulary(kind: str, lines: list[str]) -> None:
    vocabulary = build_vocabulary(kind, lines, size=8_000)
    assert [vocabulary.decode(vocabulary.encode(line)) for line in lines] == lines


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_size_below_bytes_and_characters_names_the_smallest_possible(kind: str) -> None:
    with pytest.raises(ValueError, match=r"alone need (\d+); increase vocabulary.size$"):
        build_vocabulary(kind, LINES, size=100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "word", "size": 100}, "unknown vocabulary kind 'word'; choose one of words, characters"),
        ({"kind": "words", "size": 4}, r"size \(4\) must be larger than the 4 special ids"),
        ({"kind": "bpe", "size": 300, "min_count": 2}, r"min_count \(2\) must be 1 for a bpe"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_vocabulary(lines=LINES, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"joint":{"kind":"words","counts":{"a"',
        b'{"joint":{"kind":"bpe","model":"AAAA"}}',
        b'{"joint":{"kind":"syllables"}}',
        b'{"kind":"words"}',
    ],
)
def test_the_error_for_a_damaged_file_is_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"vocabulary\.json: ") as caught:
        load_pair(tmp_path)
    assert "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"vocabulary\.json: no such file"):
        load_pair(tmp_path)


def test_training_repeats_in_another_process_and_is_silent() -> None:
    code = (
        "from data.vocabulary import build_pair; from data.corpus import Pairs; "
        f"p = Pairs({LINES!r}, {LINES!r}); "
        "print(*(build_pair(p, kind=k, size=320, joint=True).content_hash for k in ('unigram', 'bpe')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    train = Pairs(LINES, LINES)
    pairs = [build_pair(train, kind=kind, size=320, joint=True) for kind in ("unigram", "bpe")]
    assert (run.stdout.split(), run.stderr) == ([pair.content_hash for pair in pairs], "")
