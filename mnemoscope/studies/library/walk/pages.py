"""What the site shows besides the ledger: the published arithmetic, and the walk itself."""

from collections.abc import Mapping

from mnemoscope.report.site.extra import ExtraPage
from mnemoscope.report.walk import render_page
from mnemoscope.report.walk.choose_prompt import choose_model, describe_walk, walk_prompt
from mnemoscope.studies.library.walk import published
from mnemoscope.studies.library.walk.conditions import ABC
from mnemoscope.training.run import Run

DIGITS = 4


def walk_through(runs: Mapping[str, Run]) -> str:
    """The walk of the ABC model's first seed that finished; empty where it is not stored."""
    if ABC not in runs:
        return ""
    run = runs[ABC]
    seed = next(seed for seed in run.seeds if run.outcome(seed) == "finished")
    chosen = choose_model(run, "the ABC model", seed)
    found = walk_prompt(chosen, None)
    return render_page(found, describe_walk(chosen, found), DIGITS, back="index.html")


STATEMENTS = (*published.inputs(), *published.readings())
PAGES = (
    ExtraPage(
        file="walk-through.html",
        title="Walk-through",
        about="Every number of a forward pass through a model with two dimensions.",
        make=walk_through,
    ),
)
