"""In a notebook: everything shows itself, nothing from outside becomes markup,
and the example runs as it stands.
"""

import ast
import json
import linecache
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.core import notebook
from mnemoscope.studies.ledger_files import read_ledger
from mnemoscope.studies.published import published_folder

TOUR = Path(__file__).parents[1] / "examples" / "tour.ipynb"


def cells(path: Path) -> list[str]:
    return [
        "".join(cell["source"])
        for cell in json.loads(path.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]


def played(source: str, names: dict) -> object:
    """Run a cell as a notebook does: its last line, if it is an expression, is what it shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    # every cell has a file of its own, which lies in memory
    file = f"<cell {hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    for statement in tree.body:  # one by one, as IPython does
        exec(compile(ast.Module([statement], []), file, "exec"), names)
    return (
        eval(compile(ast.Expression(last.value), file, "eval"), names)
        if isinstance(last, ast.Expr)
        else None
    )


class Tags(HTMLParser):
    """Which tags are open, to see that all are closed."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def tags(text: str) -> list[str]:
    parser = Tags()
    parser.feed(text)
    assert parser.open == []
    return parser.seen


@pytest.fixture(scope="module")
def shown():
    names: dict = {"__name__": "__main__"}
    return [played(source, names) for source in cells(TOUR)]


def test_the_tour_runs_and_shows_everything(shown):
    run, accuracy, model, cache, attention, answers, without, mine, ledger, entry = shown
    for thing in (run, accuracy, model, cache, mine, ledger, entry):
        assert "table" in tags(thing._repr_html_())
    assert "4 seeds, 1,500 steps" in run._repr_html_()
    assert tags(run._repr_html_()).count("polyline") == 4
    assert "blocks.0.attn.W_Q" in model._repr_html_()
    assert cache._repr_html_().count("attention of head") == 2
    assert accuracy.mean()[-1] > 0.9, "the last answer is certain"
    assert tags(attention._repr_html_()).count("g") == 2, "a map of each head"
    assert answers["exact"] == [0, 0, 1, 0, 0]
    assert answers["model"][2] > 0.9
    assert len(without) == 2
    assert all(claim.id in ledger._repr_html_() for claim in ledger.claims)
    assert entry.criterion[:40] in entry._repr_html_()


def test_the_tour_is_kept_without_outputs():
    assert all(cell.get("outputs", []) == [] for cell in json.loads(TOUR.read_text())["cells"])


def test_attention_is_drawn_as_dark_as_it_is():
    drawn = notebook.draw_attention(np.array([[[1.0, 0.0], [0.25, 0.75]]]))
    assert [x.split('"')[0] for x in drawn.split('fill-opacity="')[1:]] == [
        "1.000",
        "0.250",
        "0.750",
    ]


def test_a_verdict_that_is_firm_is_called_so():
    book = read_ledger(published_folder() / "full", "hops", "full")
    assert book is not None
    assert ", firm" not in book._repr_html_()
    firm = book.claims[0].model_copy(update={"firm": True})
    assert ">reproduced, firm</b>" in firm._repr_html_()
    assert ">reproduced, firm</b>" in book.model_copy(update={"claims": (firm,)})._repr_html_()


def test_what_comes_from_outside_is_no_markup():
    bad = '<script>alert("x")</script>'
    book = read_ledger(published_folder() / "full", "hops", "full")
    assert book is not None
    entry = book.claims[0].model_copy(
        update={"sentence": bad, "statement": bad, "criterion": bad, "published": bad}
    )
    hostile = book.model_copy(update={"claims": (entry,), "hardware": bad, "study": bad})
    for text in (entry._repr_html_(), hostile._repr_html_()):
        assert "script" not in tags(text)
        assert "&lt;script&gt;" in text


def test_a_run_that_diverged_can_be_shown():
    model = ms.ModelConfig(d_model=8, n_heads=1, d_mlp=0)
    run = ms.fit(
        ms.Spec(
            task=ms.Permutation(n_symbols=3),
            model=model,
            steps=20,
            batch=4,
            optimizer=ms.SGD(lr=1e30),
        ),
        [0, 1],
    )
    assert "0 finished" in run._repr_html_()
    tags(run._repr_html_())
