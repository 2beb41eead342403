"""Text as tokens: against merges by hand and another tokenizer."""

import json

import numpy as np
import pytest

from mnemoscope.core.errors import UserError
from mnemoscope.models.language import (
    Tokenizer,
    read_tokenizer,
)
from mnemoscope.models.language.tokens import byte_characters

BYTES = byte_characters()
SMALL = Tokenizer(
    (*BYTES, "he", "ll", "hell", "Ġw", "Ġ,"),
    (("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "w")),
    single_digits=True,
)


def test_merges_in_order():
    assert BYTES[ord(" ")] == "Ġ"
    assert len(set(BYTES)) == 256
    assert [SMALL.vocabulary[i] for i in SMALL.encode("hello w")] == ["hell", "o", "Ġw"]
    assert SMALL.words("I'll pay  $12 for it's\n\nü²") == [
        "I",
        "'ll",
        " pay",
        " ",
        " $",
        "1",
        "2",
        " for",
        " it",
        "'s",
        "\n",
        "\n",
        "ü",
        "²",
    ]


@pytest.mark.parametrize(
    "text", ["", "hello w", " a  b\t\n c ", "naïve - 東京 🙂 x²", "12,345.6", "it's <|endoftext|>"]
)
def test_text_comes_back(text):
    assert SMALL.decode(SMALL.encode(text)) == text
    assert "".join(SMALL.words(text)) == text


def test_a_byte_that_has_no_token():
    with pytest.raises(UserError, match="no token for 'b', a part of 'ab'"):
        Tokenizer(("a",), (), single_digits=False).encode("ab")


@pytest.mark.parametrize("tokens", [[-1], [261], [[1, 2], [3, 4]]])
def test_tokens_that_are_no_text(tokens):
    with pytest.raises(UserError, match="text is made of one row of tokens 0 to 260, got"):
        SMALL.decode(tokens)


@pytest.mark.parametrize("single", [True, False])
def test_words_against_another_tokenizer(single):
    tokenizers = pytest.importorskip(
        "tokenizers", reason="tokenizers is not installed: no second opinion on words"
    )
    by = tokenizers.pre_tokenizers
    theirs = by.ByteLevel(add_prefix_space=False)
    theirs = by.Sequence([by.Digits(individual_digits=True), theirs]) if single else theirs
    ours = Tokenizer(BYTES, (), single)
    draw = np.random.default_rng(0)
    alphabet = [*"ab Z'stréß²½Ⅷ٣東 \n\t\u00a0\u2003.,$€🙂\u0301_0123456789", "'ll", "'s", "  "]
    for _ in range(300):
        text = "".join(draw.choice(alphabet, 12))
        expected = [text[a:b] for _, (a, b) in theirs.pre_tokenize_str(text)]
        assert ours.words(text) == expected, repr(text)


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
DIGITS = {"type": "Digits", "individual_digits": True}
MODEL = {"type": "BPE", "vocab": {"a": 0}, "merges": []}


def test_a_tokenizer_from_a_folder(tmp_path):
    model = {
        "type": "BPE",
        "vocab": {token: i for i, token in enumerate(SMALL.vocabulary)},
        "merges": [[*m] for m in SMALL.merges],
    }
    data = {
        "model": model,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [DIGITS, BYTE_LEVEL]},
        "added_tokens": [{"content": "<end>", "id": 261}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    assert read_tokenizer(tmp_path) == Tokenizer((*SMALL.vocabulary, "<end>"), SMALL.merges, True)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram"}}))
    with pytest.raises(UserError, match="is 'Unigram'; allowed: 'BPE'"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pre_tokenizer": None}, r"cuts text by \[\]; allowed: ByteLevel"),
        ({"pre_tokenizer": DIGITS}, "cuts text by .*'Digits'"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, "cuts text by .*'Metaspace'"),
        ({"pre_tokenizer": BYTE_LEVEL | {"add_prefix_space": True}}, "'add_prefix_space': True"),
        ({"pre_tokenizer": BYTE_LEVEL | {"use_regex": False}}, "'use_regex': False"),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTE_LEVEL, BYTE_LEVEL]}},
            "cuts text by",
        ),
        (
            {"normalizer": {"type": "Lowercase"}},
            r"normalizes text by \['Lowercase'\]; allowed: NFC",
        ),
        ({"model": MODEL | {"byte_fallback": True}}, "has byte_fallback=True; allowed: none"),
        ({"model": MODEL | {"ignore_merges": True}}, "has ignore_merges=True; allowed: none"),
    ],
)
def test_a_tokenizer_that_cuts_otherwise_is_refused(tmp_path, change, message):
    """It would make other tokens without a word."""
    data = {"model": MODEL, "pre_tokenizer": BYTE_LEVEL} | change
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=message) as error:
        read_tokenizer(tmp_path)
    assert "\n" not in str(error.value)


def test_text_is_put_into_nfc_where_the_tokenizer_says_so(tmp_path):
    model = {"type": "BPE", "vocab": {t: i for i, t in enumerate(BYTES)}, "merges": []}
    data = {"model": model, "pre_tokenizer": BYTE_LEVEL, "normalizer": {"type": "NFC"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    apart = "e\u0301"  # e and an accent, which NFC makes one character
    found = read_tokenizer(tmp_path)
    assert found.encode(apart) == found.encode("\u00e9") == [*"\u00e9".encode()]
    (tmp_path / "tokenizer.json").write_text(json.dumps(data | {"normalizer": None}))
    assert read_tokenizer(tmp_path).encode(apart) == [*apart.encode()]
