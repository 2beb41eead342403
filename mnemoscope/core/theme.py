"""The verdicts, and every color that means something: on light, on dark, and in a terminal.

Terminal tables, notebooks, figures and the site's style sheet are all colored from here. Colors of
series are Okabe and Ito's, told apart by color-blind readers.
"""

from typing import Literal, NamedTuple

Verdict = Literal["reproduced", "partly", "refuted", "undecided"]


class Color(NamedTuple):
    """A color as it is on light and on dark paper."""

    light: str
    dark: str


class Look(NamedTuple):
    """How a verdict is written."""

    terminal: str
    """The style of a terminal, by Rich's name for it."""
    color: Color
    """The color on paper that is known to be light or dark."""
    either: str
    """The color where nobody knows which: in a notebook."""


# in the order in which verdicts are counted and sorted
VERDICTS: dict[Verdict, Look] = {
    "reproduced": Look("green", Color("#00663f", "#4fd19b"), "#0a8a5a"),
    "partly": Look("yellow", Color("#7a5200", "#f0b849"), "#a87400"),
    "refuted": Look("red", Color("#a3230f", "#ff8f7a"), "#d0432c"),
    "undecided": Look("dim", Color("#565d68", "#a7afbb"), "#808894"),
}

# what figures are drawn with; inside a page the first three become the page's own
INK = "#1c1e21"
SEED = "#0072b2"
PUBLISHED = "#d55e00"
GREEN = "#009e73"
PINK = "#cc79a7"
ORANGE = "#e69f00"
SKY = "#56b4e9"
YELLOW = "#f0e442"
GRAY = "#999999"
SERIES = (SEED, PUBLISHED, GREEN, PINK, ORANGE)
# of the tokens of a walk, neighbors as different as can be
TOKENS = (SEED, ORANGE, GREEN, PINK, SKY, PUBLISHED, YELLOW, GRAY)

# by the name that style sheets have for it
COLORS: dict[str, Color] = {
    "ink": Color(INK, "#e6e8eb"),
    "quiet": Color("#565d68", "#a7afbb"),
    "paper": Color("#ffffff", "#16181c"),
    "line": Color("#d3d8df", "#3a4049"),
    "band": Color("#f4f6f8", "#20242a"),
    "link": Color("#005f96", "#6cc0f5"),
    "seed": Color(SEED, "#3f9fdc"),
    "published": Color(PUBLISHED, "#f08030"),
    # what is not as it should be: in words, and where it must not be overlooked
    "warn": Color("#a33a00", "#ffb08a"),
    "alarm": Color("#b00020", "#ff9aa8"),
    # the explorer's: shares and the largest of them, text on the largest, exact answers, the
    # training's own, and attention, above and below zero, on which ink can be read
    "bar": Color("#8fbbdd", "#39698f"),
    "best": Color(SEED, SKY),
    "strong": Color("#ffffff", "#101214"),
    "exact": Color("#b34700", "#ff9d4d"),
    "train": Color("#00785a", "#3fd1a4"),
    "heat": Color("#4a9ccb", "#2f6788"),
    "cold": Color("#e08a4f", "#8a4f1c"),
    **{name: look.color for name, look in VERDICTS.items()},
}


def css_variables() -> str:
    """The colors as variables of a style sheet, `--ink` and so on, for light and dark paper."""
    light = "".join(f"  --{name}: {color.light};\n" for name, color in COLORS.items())
    dark = "".join(f"    --{name}: {color.dark};\n" for name, color in COLORS.items())
    return (
        f":root {{\n  color-scheme: light dark;\n{light}}}\n\n"
        f"@media (prefers-color-scheme: dark) {{\n  :root {{\n{dark}  }}\n}}\n"
    )
