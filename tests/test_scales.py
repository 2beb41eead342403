"""The scales: which one is meant, and that every text about them comes from one table."""

from pathlib import Path
from typing import get_args

import pytest

import mnemoscope
from mnemoscope.studies.scales import ABOUT, LARGEST_FIRST, SCALES, Scale, pick_scale

HOME = Path(mnemoscope.__file__).parent


def test_every_scale_is_in_words():
    assert tuple(ABOUT) == SCALES == get_args(Scale) == tuple(reversed(LARGEST_FIRST))


@pytest.mark.parametrize(
    ("known", "asked", "meant"),
    [
        (("quick", "full"), None, "full"),
        (("full", "quick"), "quick", "quick"),
        (("quick",), None, "quick"),
        (("quick",), "full", "full"),
        ((), None, "quick"),
    ],
)
def test_the_largest_scale_that_there_is_is_meant(known, asked, meant):
    assert pick_scale(known, asked) == meant


def test_no_other_file_has_the_words_of_a_scale():
    kinds = (".py", ".html", ".js")
    words = [about.budget for about in ABOUT.values()]
    found = [
        file.name
        for file in HOME.rglob("*.*")
        if file.suffix in kinds and any(each in file.read_text() for each in words)
    ]
    assert found == ["scales.py"]
