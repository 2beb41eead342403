"""A walk as text, Markdown, page, LaTeX and picture, and the command that writes them."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tries import tries
from walked import NAMES, config_of, model_of, parsed, walk_of

from mnemoscope.cli import stored_runs
from mnemoscope.core.errors import UserError
from mnemoscope.execution.local import load_or_train
from mnemoscope.models import ModelConfig
from mnemoscope.probes.walk import walk
from mnemoscope.report.walk import (
    render_latex,
    render_markdown,
    render_page,
    render_text,
    write_pdf,
)
from mnemoscope.report.walk.cells import MOST, format_number
from mnemoscope.report.walk.choose_prompt import parse_prompt
from mnemoscope.report.walk.latex import format_equation
from mnemoscope.report.walk.page import format_equation as on_page
from mnemoscope.report.walk.plane import cut_polygon, find_plane
from mnemoscope.report.walk.text import WIDTH, split_table
from mnemoscope.store import Store
from mnemoscope.studies.library.walk.command import command as walk_command
from mnemoscope.tasks import Cycle, Permutation
from mnemoscope.training.spec import Spec

FLAT = {"d_model": 2, "n_heads": 1, "d_mlp": 0}


def flat(seed=0, **changes):
    """A model whose stream is a plane."""
    return model_of(config_of(FLAT | changes), seed)


def test_big_matrices_are_folded_and_small_numbers_have_no_minus():
    wide = MOST + 1
    found = walk(flat(d_model=wide, d_mlp=40), [0, 1], NAMES)
    for render in (render_text, render_markdown):
        printed = render(found, "a walk", 3)
        assert f"({wide} x {3 * wide})" in printed
        assert max(map(len, printed.splitlines())) < 200
        assert "..." in printed
    assert format_number(-1e-9, 3) == "0.000"
    assert format_number(-0.0006, 3) == "-0.001"
    assert format_number(-np.inf, 3) == "-inf"


@pytest.mark.parametrize("row", ["as it is", "GPT-J", "Llama"])
def test_text_fits_a_terminal(row):
    """Formulas and sentences wrap, wide tables are broken; the numbers stay what they are."""
    found = walk_of(row)[1]
    printed = render_text(found, "a walk", 9)
    rows = printed.splitlines()
    assert max(map(len, rows)) <= WIDTH
    assert rows == [line.rstrip() for line in rows]
    whole = render_text(found, "a walk", 9, width=10**6)
    assert max(map(len, whole.splitlines())) > WIDTH
    values = re.compile(r"-?\d+\.\d{9}|-inf")
    assert sorted(values.findall(printed)) == sorted(values.findall(whole))


def test_a_wide_table_is_broken_into_blocks():
    """Widths 2, 3, 5 and 4 with two spaces before each number: 2 + 5 + 7 = 14."""
    table = [["A", "1.0", "22.00", "3.25"], ["BC", "0.5", "-1.00", "4.75"]]
    assert list(split_table(table, 20)) == [table]
    assert list(split_table(table, 19)) == [
        [["A", "1.0", "22.00"], ["BC", "0.5", "-1.00"]],
        [["A", "3.25"], ["BC", "4.75"]],
    ]
    four = [["A", "1.00", "2.00", "3.00", "4.00"]]
    # three would fit beside each other, but nobody wants one alone
    assert list(split_table(four, 1 + 3 * 6)) == [[["A", "1.00", "2.00"]], [["A", "3.00", "4.00"]]]
    assert list(split_table(table, 13)) == [
        [["A", "1.0"], ["BC", "0.5"]],
        [["A", "22.00"], ["BC", "-1.00"]],
        [["A", "3.25"], ["BC", "4.75"]],
    ]
    assert list(split_table(table, 1)) == list(split_table(table, 13))


def test_blocks_say_which_columns_they_have():
    printed = render_text(walk(flat(d_model=6), [0], NAMES), "a walk", 9)
    block = re.search(
        r"   W_E \(4 x 6\)\n( +0 +1 +2\n(?:.*\n){4}\n +3 +4 +5\n(?:.*\n){4})\n", printed
    )
    assert block, printed[:2000]


@tries(6)
@given(st.integers(0, 99), st.sampled_from(["none", "pre", "post"]))
def test_regions_are_where_the_read_out_says_so(seed, norm):
    """Random points of the frame: the region that holds one
    is that of the token with the largest logit.
    """
    found = walk(flat(seed, norm=norm), [0, 1, 2], NAMES)
    drawn = find_plane(found)
    (w, b), rng = found.read_out, np.random.default_rng(seed)
    for point in rng.uniform(drawn.low, drawn.high, (50, 2)):
        logits = w.T @ point + b
        if np.sort(logits)[-1] - np.sort(logits)[-2] < 1e-6:
            continue
        inside = [
            name
            for name, polygon in drawn.regions.items()
            if len(polygon) > 2 and holds(polygon, point)
        ]
        assert inside == [NAMES[logits.argmax()]]
    area = sum(area_of(polygon) for polygon in drawn.regions.values())
    assert area == pytest.approx((drawn.high[0] - drawn.low[0]) ** 2)
    ends = np.stack([path[-1] for path in drawn.paths.values()])
    read = (ends @ w + b).argmax(axis=1)
    np.testing.assert_array_equal(
        read, found.logits.argmax(axis=1), err_msg="a path ends where the answer is read"
    )


def test_a_path_starts_where_the_stream_starts():
    """With positions to add, it leaves the embedding for them;
    without, it leaves the embedding by what attention wrote.
    """
    more = find_plane(walk(flat(positions="sinusoidal"), [0, 1], NAMES))
    assert more.stages == ("position", "attention")
    for positions in ("none", "rotary"):
        model = flat(positions=positions)
        fewer = find_plane(walk(model, [0, 1], NAMES))
        assert fewer.stages == ("attention",)
        np.testing.assert_array_equal(fewer.paths["1 B"][0], model.params["embed.W_E"][1])
        np.testing.assert_array_equal(fewer.paths["1 B"][0], more.paths["1 B"][0])
    assert find_plane(walk(flat(d_model=3), [0], NAMES)) is None


def holds(polygon, point):
    """Whether a convex polygon, in either direction round, holds a point."""
    edges, to = np.roll(polygon, -1, axis=0) - polygon, point - polygon
    sides = edges[:, 0] * to[:, 1] - edges[:, 1] * to[:, 0]
    return (sides >= 0).all() or (sides <= 0).all()


def area_of(polygon):
    x, y = polygon.reshape(-1, 2).T
    return abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2


def test_a_square_is_cut_in_half():
    square = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    assert area_of(cut_polygon(square, np.array([1.0, 0.0]), -1.0)) == 2 * 1
    assert area_of(cut_polygon(square, np.array([1.0, 1.0]), -2.0)) == 2 * 2 / 2
    assert len(cut_polygon(square, np.array([1.0, 0.0]), -3.0)) == 0


def test_names_are_never_markup():
    names = ("<b>&", "%_$", "\\x", "d")
    found = walk(flat(), [0, 1, 2], names)
    html = render_page(found, "<script>", 3)
    assert "<b>" not in html
    assert "<script>" not in html
    assert "&lt;b&gt;&amp;" in html
    assert "http" not in html
    document = render_latex(found, "50% & more", 3)
    assert r"50\% \& more" in document
    assert r"\%\_\$" in document
    assert r"\textbackslash{}x" in document
    for begin in ("document", "array", "tabular", "tikzpicture"):
        assert document.count(rf"\begin{{{begin}}}") == document.count(rf"\end{{{begin}}}") > 0


@pytest.mark.parametrize(
    ("formula", "in_latex", "on_a_page"),
    [
        (
            "Q_0_h1 @ K_0_g0^T / sqrt(4)",
            r"Q_{\text{0,h1}}\,K_{\text{0,g0}}^{\top} / \sqrt{4}",
            "Q<sub>0,h1</sub> K<sub>0,g0</sub><sup>T</sup> / √4",
        ),
        (
            "rms_norm(X, 1e-05) * w_N",
            r"\operatorname{rms\_norm}(X, 10^{-5})\odot w_{\text{N}}",
            "rms_norm(X, 10<sup>-5</sup>) ⊙ w<sub>N</sub>",
        ),
        (
            "layer_norm(X, 2.5e-06)",
            r"\operatorname{layer\_norm}(X, 2.5 \cdot 10^{-6})",
            "layer_norm(X, 2.5 · 10<sup>-6</sup>)",
        ),
        (
            "rotate(Q_h0, Phi)",
            r"\operatorname{rotate}(Q_{\text{h0}}, \Phi)",
            "rotate(Q<sub>h0</sub>, Φ)",
        ),
        (
            "gelu_new(H_gate) * H_in + b_in",
            r"\operatorname{gelu\_new}(H_{\text{gate}})\odot H_{\text{in}} + b_{\text{in}}",
            "gelu_new(H<sub>gate</sub>) ⊙ H<sub>in</sub> + b<sub>in</sub>",
        ),
        ("N2_0 @ W_QKV_0", r"N2_{\text{0}}\,W_{\text{QKV,0}}", "N2<sub>0</sub> W<sub>QKV,0</sub>"),
    ],
)
def test_formulas_as_a_person_writes_them(formula, in_latex, on_a_page):
    assert format_equation(formula) == in_latex
    assert on_page(formula) == on_a_page


SET = ("as it is", "norm_eps", "attention relu causal True", "sinusoidal", "GPT-J", "Llama")


def test_every_formula_can_be_set():
    """By Matplotlib's reader of TeX's mathematics, where there is no TeX;
    an unescaped name fails.
    """
    reader = pytest.importorskip("matplotlib.mathtext").MathTextParser("path")
    seen = set()
    for row in SET:
        for step in walk_of(row)[1].steps:
            seen.update(f"{line.name} = {line.formula or 0}" for line in step.lines)
    for formula in seen:
        reader.parse(f"${format_equation(formula)}$")
        assert "_" not in re.sub(r"\w+\(", "", on_page(formula))
    assert len(seen) > 100
    with pytest.raises(ValueError, match="subscript"):
        reader.parse("$" + format_equation("rms_norm(X)").replace(r"\_", "_n_") + "$")


def test_same_walk_same_bytes():
    one, two = (render_page(walk(flat(3), [0, 1], NAMES), "a walk", 4) for _ in range(2))
    assert one == two


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "the prompt is empty; allowed: 1 to 3 of A B C"),
        ("ABX", "unknown token 'X' in the prompt 'ABX'; allowed: 1 to 3 of A B C"),
        ("ABCA", "the prompt 'ABCA' has 4 tokens; allowed: 1 to 3 of A B C"),
    ],
)
def test_prompts_that_cannot_be(prompt, message):
    with pytest.raises(UserError, match=re.escape(message)):
        parse_prompt(("A", "B", "C"), 3, prompt)
    assert parse_prompt(("A", "B", "C"), 3, "C a B".replace("a", "A")) == [2, 0, 1]


def test_any_stored_run_can_be_walked(tmp_path, capsys):
    spec = Spec(
        task=Permutation(n_symbols=3), model=ModelConfig(d_model=4, d_mlp=4), steps=3, batch=4
    )
    run = load_or_train(Store(tmp_path), spec, range(2))
    walk_command(run=run.spec.digest()[:6], seed=1, prompt="1 2 3", store=tmp_path)
    printed = capsys.readouterr().out
    # the title takes two lines
    assert " ".join(printed.split()).startswith(
        f"The walk of 1 2 3 through run {Store(tmp_path).rows()[0].id}, seed 1, after 3 steps"
    )
    logits = next(values for name, _, values, _ in parsed(printed) if name == "L")
    np.testing.assert_allclose(logits, run.model(1)(jnp.array([1, 2, 3])), atol=1e-4)
    load_or_train(Store(tmp_path), Spec(task=Cycle(), steps=2, batch=2), range(1))
    capsys.readouterr()
    stored_runs.runs(store=tmp_path)
    listed = capsys.readouterr().out
    assert "cycle length=3 n_symbols=3" in listed
    assert "permutation" in listed
    walk_command(run=run.spec.digest(), format="html", out=tmp_path / "w.html", store=tmp_path)
    assert (tmp_path / "w.html").read_text().startswith("<!doctype html>")
    for arguments, message in (
        ({"run": "nothing"}, "no stored run starts with 'nothing'; there are: "),
        ({"run": run.spec.digest(), "seed": 5}, "no seed 5 in this run; allowed: 0, 1"),
        ({"run": run.spec.digest(), "snapshot": 7}, "no snapshot 7 in this run; allowed: 0 to 1"),
        ({"format": "docx"}, "unknown format 'docx'; allowed: text, md, html, latex, pdf"),
        ({"run": run.spec.digest(), "digits": 40}, "--digits must be 0 to 12, got 40"),
        ({"run": run.spec.digest(), "out": tmp_path / "no" / "w.txt"}, "cannot write"),
    ):
        with pytest.raises(UserError, match=message):
            walk_command(store=tmp_path, **arguments)


def test_without_a_tex_engine_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(UserError, match=r"no TeX engine is installed .* or take --format latex"):
        write_pdf("", tmp_path / "walk.pdf")
