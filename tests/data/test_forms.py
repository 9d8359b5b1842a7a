"""Forms of text: each is named by comparison, and published texts have none."""

import os
import random
import re
import subprocess
import sys
import unicodedata
import urllib.parse
from collections.abc import Callable

import pytest

from data.corpus import Corpus, Pairs, embedded_corpus
from data.forms import (
    compare_texts,
    describe_corpus,
    describe_repetition,
    describe_text,
    describe_translations,
    join_pieces,
    piece_sign,
    repeats_phrase,
)
from data.text import read_lines
from tests.kits.common import SHARED

PLAIN = [
    f"{line[:-1]}, das „größte“ Haus Nr. {n % 7} und Süd-Bahn." if n % 3 else line
    for n, line in enumerate(embedded_corpus(train=400).splits["train"].tgt)
]
SPELT_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"})
WIDE = {ord(c): chr(ord(c) + 0xFEE0) for c in "0123456789,."}


def changed(change: Callable[[str], str]) -> list[str]:
    return list(map(change, PLAIN))


def cut(line: str, sign: str) -> str:
    return re.sub(r"(\w{4})(\w+)", rf"\1{sign}\2", line)


FORMS: list[tuple[list[str], str]] = [
    (changed(lambda line: cut(line, "￭ ").replace(".", " ￭.")), "pieces of words (￭)"),
    (changed(lambda line: cut(line, "@@ ")), "pieces of words (@@)"),
    (changed(lambda line: cut(line, " ##")), "pieces of words (##)"),
    (changed(lambda line: " ".join(f"{word}</w>" for word in line.split())), "pieces of words (</w>)"),
    (changed(lambda line: f"▁{line}".replace(" ", " ▁")), "pieces of words (▁)"),
    (changed(lambda line: f"Ġ{line}".replace(" ", " Ġ")), "'Ġ'"),
    (changed(lambda line: line.replace("-", " @-@ ")), "'@'"),
    (changed(lambda line: line.replace(" ", " _")), "'_'"),
    (changed(str.lower), "capital letters in 0 of 400 lines"),
    ([PLAIN[0], *changed(str.lower)[1:]], "capital letters in 1 of 400 lines"),
    (changed(str.upper), "small letters in 0 of 400 lines"),
    (changed(lambda line: line[0].lower() + line[1:]), "a capital letter first in 0 of 400 lines"),
    (changed(lambda line: line.replace("„", '"').replace("“", '"')), "'\"'"),
    (changed(lambda line: line.translate(WIDE)), "'．'"),
    (changed(lambda line: re.sub(r"[^\w\s]", "", line)), "'.' (as in"),
    (changed(lambda line: line.replace(" ist ", " ⁇ ").replace(" das ", " ⁇ ")), "lost characters"),
    (changed(lambda line: line.replace(" das ", " [UNK] ")), "'['"),
    (changed(lambda line: line.replace(" das ", " UNK ")), "the word 'UNK'"),
    (changed(lambda line: f"deu {line}"), "the first word 'deu'"),
    (changed(lambda line: f">>deu<< {line}"), "(as in '>>deu<<')"),
    (changed(lambda line: f"{line}<|endoftext|>"), "words in angle brackets"),
    ([f"H-{n}\t-0.5\t{line}" for n, line in enumerate(PLAIN)], "'\\t'"),
    ([f"{n} ||| {line} ||| -1.2" for n, line in enumerate(PLAIN)], "'|'"),
    ([f"{n} {line}" for n, line in enumerate(PLAIN)], "a number first in 400 of 400 lines"),
    (changed(lambda line: f"{line} -0.42"), "a number last"),
    (changed(lambda line: line.encode().decode("latin-1")), "UTF-8 that was read as"),
    (changed(lambda line: line.encode().decode("mac-roman")), "UTF-8 that was read as mac-roman"),
    (changed(lambda line: line.encode("ascii", "backslashreplace").decode()), "codes of characters"),
    (changed(urllib.parse.quote), "codes of characters"),
    (changed(lambda line: line.replace("ö", "&ouml;")), "HTML entities"),
    (changed(lambda line: unicodedata.normalize("NFD", line)), "not Unicode NFC"),
    (changed(lambda line: line.encode("ascii", "ignore").decode()), "letters beyond ASCII in 0 of 400"),
    (changed(lambda line: line.translate(SPELT_OUT)), "letters beyond ASCII in 0 of 400"),
    (changed(lambda line: re.sub(r"([.,])", r" \1", line)), "a space before a full stop or comma"),
    (changed(" ".join), "letters one by one"),
    (changed(lambda line: line.replace(" ", "")), "spaces in 0 of 400 lines"),
    (changed(lambda line: line.replace(" ", "  ")), "a space before a space"),
    (changed(lambda line: f'<seg id="1"> {line} </seg>'), "words in angle brackets"),
    ([f"Это предложение {n}." for n in range(400)], "CYRILLIC letters in 400 of 400 lines"),
    ([PLAIN[0]] * 400, "only 1 of 400 lines are different"),
    (PLAIN[1:] + PLAIN[:1], "resemble reference i+1 instead of i"),
    (PLAIN[:200] + PLAIN[201:] + PLAIN[-1:], "50% of the lines resemble reference i+1 instead of i"),
    (PLAIN[::-1], "put them in the order of the references"),
    (random.Random(1).sample(PLAIN, 400), "put them in the order of the references"),
    (changed(lambda line: f"{line} {line} {line}"), "3.02 characters per character"),
    (["", *PLAIN[:394], *[""] * 5], "6 of 400 lines are blank: were they lost?"),
    (changed(lambda line: f"wird wird wird {line}"), "a phrase occurs three times in a row in 400 of 400"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FORMS, ids=[message for _, message in FORMS])
def test_each_form_of_translations_is_named(text: list[str], message: str):
    assert any(message in warning for warning in describe_translations(text, PLAIN))


def test_forms_that_only_the_references_have():
    references = changed(lambda line: f"{line} m² ½")
    text = [unicodedata.normalize("NFKC", line) for line in references]
    assert any(
        "full-width ones in 0 of 400" in warning for warning in describe_translations(text, references)
    )
    references = [f"{line} Maß{n % 20}" for n, line in enumerate(PLAIN)]
    warnings = describe_translations([line.replace("ß", "ss") for line in references], references)
    assert any(re.search(r"'ß' \(as in '\w+'\) in 0 of 400", warning) for warning in warnings)
    chinese = [f"我看到了第{n}个句子，很好。" for n in range(400)]
    ascii_marks = [line.replace("，", ",").replace("。", ".") for line in chinese]
    assert any("','" in warning for warning in describe_translations(ascii_marks, chinese, unspaced=False))


def test_equal_forms_and_few_lines_are_not_named():
    assert describe_translations(PLAIN, PLAIN) == []
    assert describe_translations(PLAIN[:200] * 2, PLAIN[:200] * 2) == []
    assert describe_translations(PLAIN[:3], changed(str.upper)[:3]) == []
    other = embedded_corpus(train=800).splits["train"].tgt
    assert compare_texts(other[400:], other[:400], "training set", same_sentences=False) == []


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ("ein M@@ ann", "pieces of words (@@)"),
        ("ein Mann_X im H_aus", "'_' beside letters"),
        ("a <unk> b", "words in angle brackets"),
        ("我喜欢猫", "text without spaces"),
        ("FuÃŸball", "UTF-8 that was read as cp1252"),
    ],
)
def test_a_text_alone_is_compared_with_plain_text(line: str, form: str):
    assert [finding.form for finding in describe_text([line] * 3)] == [form]


@pytest.mark.parametrize(
    ("lines", "joined"),
    [
        (["rid@@ ing a h@@", "er er"], ["riding a h", "er er"]),
        (["▁rid ing ▁on", "er er F", "▁a x@@"], ["riding on", "ererF", "ax@@"]),
        (["Luft￭ ballon ￭.", "( ￭a￭ )"], ["Luftballon.", "(a)"]),
        (["rid ##ing on"], ["riding on"]),
        (["rid ing</w> on</w>"], ["riding on"]),
        (["no ## sign @ all"], ["no ## sign @ all"]),
    ],
)
def test_pieces_are_joined_by_the_sign_of_most_lines(lines: list[str], joined: list[str]):
    sign = piece_sign(lines)
    assert [join_pieces(line, sign) for line in lines] == joined


@pytest.mark.parametrize(
    ("line", "repeats"),
    [
        ("en en wird wird wird", True),
        ("a b c a b c a b c d", True),
        ("sehr sehr gut ... ... ... ...", False),
        ("1 1 1 1", False),
        ("我喜欢我喜欢我喜欢我喜欢", True),
        ("哈哈哈哈哈", False),
    ],
)
def test_repeated_phrases(line: str, repeats: bool):
    assert repeats_phrase(line) == repeats


def test_repetition_is_measured_against_the_other_text():
    lines = ["so so so"] * 20
    assert len(describe_repetition(lines, PLAIN[:20])) == 2
    assert describe_repetition(lines, lines) == []


def test_the_splits_of_a_corpus_are_compared_with_train():
    train, test = Pairs(PLAIN, PLAIN), Pairs(changed(str.lower), changed(lambda line: f"deu {line}"))
    corpus = Corpus(
        name="x", src_lang="a", tgt_lang="b", splits={"train": train, "valid": train, "test": test}
    )
    warnings = describe_corpus(corpus, "words")
    assert warnings[0] == "400 of 400 sources of valid also occur in train"
    assert any(warning.startswith("test, a: capital letters in 0 of 400") for warning in warnings)
    assert any(warning.startswith("test, b: the first word 'deu'") for warning in warnings)
    assert not any(warning.startswith("valid, ") for warning in warnings)


def test_published_translations_have_the_form_of_their_reference():
    """But online-F, which has „ “ where the reference has " "."""
    folder = SHARED / "scored-wmt17-en-de"
    if not folder.is_dir():
        pytest.skip("needs the scored translations")
    reference = read_lines(folder / "ref.de.gz", allow_blank=True)
    for path in sorted((folder / "sys").iterdir()):
        warnings = describe_translations(read_lines(path, allow_blank=True), reference)
        assert [re.findall(r"'(.)' \(as", warning) for warning in warnings] == (
            [["“"], ['"']] if path.name.startswith("online-F") else []
        )


WORDS = [f"word{n}" for n in range(60)]


def test_every_process_gives_the_same_answer():
    """A set of words has another order in each process."""
    draw = random.Random(1)
    text, other = ([" ".join(draw.choices(WORDS, k=6)) for _ in range(200)] for _ in "12")
    several = [f"{line} <unk> &quot; \\u00fc x@@ a\u0308 ." for line in text]
    code = (
        f"from data.forms import *; print(measure_order({text}, {other}))\n"
        f"print(describe_text({several}), describe_translations({several}, {text}))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in "0123"
    }
    assert len(answers) == 1


def test_a_few_unrelated_lines_are_not_shifted():
    """Among 20 pairs of random lines, three often have the same displacement."""
    draw = random.Random(1)
    for _ in range(50):
        text, other = ([" ".join(draw.choices(WORDS, k=6)) for _ in range(20)] for _ in "12")
        assert not [warning for warning in describe_translations(text, other) if "resemble" in warning]
