"""The colors of verdicts: one file says them, and terminal, notebook and site show them."""

import re
from pathlib import Path
from typing import get_args

import pytest
from rich.style import Style

import mnemoscope
from mnemoscope.core import notebook
from mnemoscope.core.theme import COLORS, VERDICTS, Verdict, css_variables
from mnemoscope.explorer import build_page
from mnemoscope.report.ledger_tables import styled

HOME = Path(mnemoscope.__file__).parent


def test_every_verdict_has_a_look():
    assert tuple(VERDICTS) == get_args(Verdict)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_verdict_is_shown_in_its_colors(verdict):
    look = VERDICTS[verdict]
    assert Style.parse(look.terminal)
    assert styled(verdict, f"{verdict}!") == f"[{look.terminal}]{verdict}![/]"
    assert f"color: {look.either}" in notebook.format_verdict(verdict)
    light, dark = css_variables().split("@media")
    assert f"--{verdict}: {look.color.light};" in light
    assert f"--{verdict}: {look.color.dark};" in dark


# `#fff`, `#0072b2`, `#0072b280`; not `&#39;`, and not the address of a claim
HEX = re.compile(r"(?<![&\w])#(?:[0-9a-f]{8}|[0-9a-f]{6}|[0-9a-f]{3,4})\b", re.IGNORECASE)


def test_no_other_file_has_a_color():
    kinds = (".py", ".css", ".js", ".html")
    files = [file for file in HOME.rglob("*.*") if file.suffix in kinds]
    found = {file.name: HEX.findall(file.read_text()) for file in files}
    assert [name for name, colors in found.items() if colors] == ["theme.py"]


def test_a_color_is_noticed():
    assert HEX.findall("fill: #fff; color: #0072B2; #R13 &#39; #page") == ["#fff", "#0072B2"]


def test_every_color_of_a_style_sheet_is_one_of_the_theme():
    used = set()
    for file in HOME.rglob("*.*"):
        if file.suffix in (".css", ".js", ".html", ".py"):
            used |= set(re.findall(r"var\(--([a-z]+)\)", file.read_text()))
    assert used <= set(COLORS)


def test_the_pages_colors_come_first_and_once():
    page = build_page([])
    assert page.count(css_variables()) == 1
    # where share.js looks for them
    assert page.index("<style>") + len("<style>") == page.index(css_variables())


def test_no_other_file_lists_the_verdicts():
    kinds = (".py", ".css", ".js", ".html")
    files = [file for file in HOME.rglob("*.*") if file.suffix in kinds]
    quoted = [f'"{verdict}"' for verdict in VERDICTS]
    found = []
    for file in files:
        lines = file.read_text().splitlines()
        if any(all(verdict in line for verdict in quoted) for line in lines):
            found.append(file.name)
    assert found == ["theme.py"]
