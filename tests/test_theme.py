"""The colors of verdicts: one file says them, and terminal, notebook and site show them."""

from pathlib import Path
from typing import get_args

import pytest
from rich.style import Style

import mnemoscope
from mnemoscope.core import notebook
from mnemoscope.core.theme import COLORS, VERDICTS, Verdict, css_variables
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


def test_no_other_file_has_a_color_of_a_verdict():
    shared = {x for name, color in COLORS.items() if name not in VERDICTS for x in color}
    colors = {x for look in VERDICTS.values() for x in (*look.color, look.either)} - shared
    assert len(colors) == 10
    kinds = (".py", ".css", ".js", ".html")
    files = [file for file in HOME.rglob("*.*") if file.suffix in kinds]
    found = [file.name for file in files if any(color in file.read_text() for color in colors)]
    assert found == ["theme.py"]


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
