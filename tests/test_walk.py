"""The walk is worked out again from its own printed numbers, line by line, for random models and prompts."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import SEEDS, evidence_of, planted, rows_of, silent
from test_model import config_of, shapes
from tries import tries

from mnemoscope import cli
from mnemoscope.core.errors import UserError
from mnemoscope.execution.local import load_or_train
from mnemoscope.models import ModelConfig, Transformer, forward, parameter_shapes
from mnemoscope.probes.walk import components, walk
from mnemoscope.report.walk import cells, latex, markdown, page, text, write_pdf
from mnemoscope.report.walk.cells import MOST, number
from mnemoscope.report.walk.plane import cut, plane
from mnemoscope.store import Store
from mnemoscope.studies.claims import SCALES
from mnemoscope.studies.library.walk import judges, published
from mnemoscope.studies.library.walk.chosen import tokens_of
from mnemoscope.studies.library.walk.conditions import ABC, MLP, POST, PRE, build_conditions
from mnemoscope.tasks import Cycle, Permutation
from mnemoscope.training.spec import Spec

NAMES = ("A", "B", "C", "D")
HEADING = re.compile(r"^   (\w+)(?: = (.+))? \((\d+) x (\d+)\)$")
FUNCTIONS = {
    "softmax": lambda x: (
        np.exp(x - x.max(1, keepdims=True))
        / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)
    ),
    "relu": lambda x: np.maximum(x, 0),
    "mask": lambda x: np.where(np.tril(np.ones(x.shape, bool)), x, -np.inf),
    "norm": lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5),
    "concat": lambda *parts: np.concatenate(parts, axis=1),
    "sqrt": np.sqrt,
}


def model_of(shape, seed, d_vocab=4, n_ctx=5):
    config, rng = config_of(shape), np.random.default_rng(seed)
    sizes, scales = parameter_shapes(config, d_vocab, n_ctx), (".ln1.w", ".ln2.w", "ln_final.w")
    return Transformer(
        config,
        {
            k: jnp.asarray(k.endswith(scales) + 0.4 * rng.normal(size=size), jnp.float32)
            for k, size in sizes.items()
        },
    )


@pytest.fixture(scope="module", autouse=True)
def whole_passes():
    """A forward pass is one program here: operation by operation, each shape would be compiled a hundred times."""
    whole = jax.jit(forward, static_argnums=0)
    with pytest.MonkeyPatch.context() as quick:
        quick.setattr("mnemoscope.models.transformer.forward", whole)
        yield


def parsed(printed):
    """(name, formula, values) of every line of a printed walk, in order."""
    rows = printed.splitlines()
    for i, row in enumerate(rows):
        if found := HEADING.match(row):
            name, formula, n, m = *found.groups()[:2], int(found[3]), int(found[4])
            first = rows.index("", i) - n  # above may stand the names of the columns
            yield (
                name,
                formula,
                np.array([[float(x) for x in rows[first + j].split()[-m:]] for j in range(n)]),
            )


def worked_out(formula, known, half):
    """The formula on printed numbers, and how far each entry moves when they are off by half a digit, one by one."""
    names = [n for n in set(re.findall(r"[A-Za-z_]\w*", formula)) if n in known]
    code = compile(formula.replace("^T", ".T"), "formula", "eval")
    values = {n: known[n].copy() for n in names}
    result = eval(code, dict(FUNCTIONS), values)
    moved = np.zeros(result.shape)
    for value in values.values():
        for i in np.ndindex(value.shape):
            if np.isfinite(value[i]):
                value[i] += half
                here = np.isfinite(result)
                moved[here] += np.abs(eval(code, dict(FUNCTIONS), values)[here] - result[here])
                value[i] -= half
    return result, moved


@tries(6)
@given(
    shapes,
    st.integers(0, 99),
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
    st.sampled_from([3, 5]),
)
def test_every_printed_line_follows_from_the_lines_above_it(shape, seed, prompt, digits):
    with pytest.MonkeyPatch.context() as whole:
        whole.setattr(cells, "MOST", 999)  # nothing folded
        printed = text(walk(model_of(shape, seed), prompt, NAMES), "a walk", digits)
    known, half = {}, 0.5 * 10.0**-digits
    for name, formula, values in parsed(printed):
        assert name not in known, f"{name} is printed twice"
        if formula:
            again, moved = worked_out(formula, known, half)
            hidden = np.isneginf(values)
            np.testing.assert_array_equal(np.isneginf(again), hidden, err_msg=name)
            allowed = (
                half + 1.1 * moved + 2e-5
            )  # rounding of this line and of those above; float32 in the model
            apart = np.abs(np.where(hidden, 0.0, again) - np.where(hidden, 0.0, values))
            assert (apart <= allowed).all(), f"{name} = {formula}: {apart.max()} apart"
        known[name] = values
    assert list(known)[-2:] == ["L", "Pr"]
    np.testing.assert_allclose(known["Pr"].sum(axis=1), 1, atol=len(NAMES) * half)


def test_the_line_test_can_fail():
    """A wrong number, and a wrong formula, are noticed."""
    shape = {
        "n_heads": 1,
        "d_head": 2,
        "n_layers": 1,
        "d_mlp": 0,
        "norm": "none",
        "bias": True,
        "tied": False,
    }
    lines = {name: (formula, values) for name, formula, values in parsed(
        text(walk(model_of(shape, 0), [0, 1, 2], NAMES), "a walk", 4))}  # fmt: skip
    known = {name: values for name, (_, values) in lines.items()}
    half = 0.5e-4
    again, moved = worked_out("E + P", known, half)
    np.testing.assert_allclose(moved, 2 * half)  # two addends
    assert np.abs(again - known["X"]).max() <= half + 1.1 * 2 * half
    assert np.abs(worked_out("E - P", known, half)[0] - known["X"]).max() > 0.01
    assert np.abs(again - (known["X"] + 0.001)).max() > half + 1.1 * 2 * half + 2e-5


@tries(6)
@given(shapes, st.integers(0, 99), st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_components_add_up_to_the_logits(shape, seed, prompt):
    model = model_of(shape, seed)
    parts = components(model, np.array(prompt))
    logits = np.asarray(model(jnp.array(prompt)))
    np.testing.assert_allclose(
        sum(parts.values()), logits, atol=1e-5 * max(1, np.abs(logits).max())
    )
    np.testing.assert_allclose(
        walk(model, prompt, NAMES).probabilities, jax.nn.softmax(logits), atol=1e-5
    )


def test_sentences_say_what_changed():
    """A model whose position decides at first and whose attention turns the answer round."""
    config = ModelConfig(d_model=2, n_heads=1, d_mlp=0, bias=False)
    zero = np.zeros((1, 2, 2))
    params = {
        "embed.W_E": np.eye(2), "pos_embed.W_pos": np.zeros((2, 2)), "unembed.W_U": np.eye(2),
        "blocks.0.attn.W_Q": zero, "blocks.0.attn.W_K": zero, "blocks.0.attn.W_V": np.eye(2)[None],
        "blocks.0.attn.W_O": np.array([[[-2.0, 2.0], [2.0, -2.0]]]),
    }  # fmt: skip
    model = Transformer(config, {k: jnp.asarray(v, jnp.float32) for k, v in params.items()})
    steps = walk(model, [0], ("A", "B")).steps
    assert (
        steps[0].sentence
        == "Each position starts as its token plus its place; read out now, the answers would be A."
    )
    # the head sees A alone and carries (1, 0); W_O turns it into (-2, 2), and A + (-2, 2) = (-1, 2) is read as B
    assert steps[-2].sentence == ("Attention pushes towards B after A (+2.00); read out now, the answers would be B (after A from "
                                  "A to B).")  # fmt: skip
    assert steps[-1].sentence == "The model says: after A comes B (95.3%)."
    assert 1 / (1 + np.exp(-3)) == pytest.approx(0.953, abs=5e-4)


def test_big_matrices_are_folded_and_small_numbers_have_no_minus():
    shape = {
        "n_heads": 1,
        "d_head": MOST + 1,
        "n_layers": 1,
        "d_mlp": 40,
        "norm": "none",
        "bias": True,
        "tied": False,
    }
    model = model_of(shape, 0)
    for render in (text, markdown):
        printed = render(walk(model, [0, 1], NAMES), "a walk", 3)
        assert f"({MOST + 1} x {3 * (MOST + 1)})" in printed
        assert max(map(len, printed.splitlines())) < 200
        assert "..." in printed
    assert number(-1e-9, 3) == "0.000"
    assert number(-0.0006, 3) == "-0.001"
    assert number(-np.inf, 3) == "-inf"


FLAT = {
    "n_heads": 1,
    "d_head": 2,
    "n_layers": 1,
    "d_mlp": 0,
    "norm": "none",
    "bias": True,
    "tied": False,
}


@tries(6)
@given(st.integers(0, 99), st.sampled_from(["none", "pre", "post"]))
def test_regions_are_where_the_read_out_says_so(seed, norm):
    """Random points of the frame: the region that holds one is that of the token with the largest logit."""
    found = walk(model_of(FLAT | {"norm": norm}, seed), [0, 1, 2], NAMES)
    drawn = plane(found)
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
    assert plane(walk(model_of(FLAT | {"d_head": 3}, seed), [0], NAMES)) is None


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
    assert area_of(cut(square, np.array([1.0, 0.0]), -1.0)) == 2 * 1
    assert area_of(cut(square, np.array([1.0, 1.0]), -2.0)) == 2 * 2 / 2
    assert len(cut(square, np.array([1.0, 0.0]), -3.0)) == 0


def test_names_are_never_markup():
    names = ("<b>&", "%_$", "\\x", "d")
    found = walk(model_of(FLAT, 0), [0, 1, 2], names)
    html = page(found, "<script>", 3)
    assert "<b>" not in html
    assert "<script>" not in html
    assert "&lt;b&gt;&amp;" in html
    assert "http" not in html
    document = latex(found, "50% & more", 3)
    assert r"50\% \& more" in document
    assert r"\%\_\$" in document
    assert r"\textbackslash{}x" in document
    for begin in ("document", "array", "tabular", "tikzpicture"):
        assert document.count(rf"\begin{{{begin}}}") == document.count(rf"\end{{{begin}}}") > 0


def test_same_walk_same_bytes():
    one, two = (page(walk(model_of(FLAT, 3), [0, 1], NAMES), "a walk", 4) for _ in range(2))
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
        tokens_of(("A", "B", "C"), 3, prompt)
    assert tokens_of(("A", "B", "C"), 3, "C a B".replace("a", "A")) == [2, 0, 1]


def test_any_stored_run_can_be_walked(tmp_path, capsys):
    spec = Spec(
        task=Permutation(n_symbols=3), model=ModelConfig(d_model=4, d_mlp=4), steps=3, batch=4
    )
    run = load_or_train(Store(tmp_path), spec, range(2))
    cli.walk(run=run.spec.digest()[:6], seed=1, prompt="1 2 3", store=tmp_path)
    printed = capsys.readouterr().out
    assert printed.startswith(
        f"The walk of 1 2 3 through run {Store(tmp_path).rows()[0].id}, seed 1, after 3 steps"
    )
    logits = next(values for name, _, values in parsed(printed) if name == "L")
    np.testing.assert_allclose(logits, run.model(1)(jnp.array([1, 2, 3])), atol=1e-4)
    load_or_train(Store(tmp_path), Spec(task=Cycle(), steps=2, batch=2), range(1))
    capsys.readouterr()
    cli.runs(store=tmp_path)
    listed = capsys.readouterr().out
    assert "cycle length=3 n_symbols=3" in listed
    assert "permutation" in listed
    cli.walk(run=run.spec.digest(), format="html", out=tmp_path / "w.html", store=tmp_path)
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
            cli.walk(store=tmp_path, **arguments)


def test_without_a_tex_engine_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(UserError, match=r"no TeX engine is installed .* or take --format latex"):
        write_pdf("", tmp_path / "walk.pdf")


def test_the_published_statements_are_worked_out():
    """The third direction is not read as C: its logits are .5150 + 1.75 * 1.2707 for A and .3778 - 1.75 * .6578 for C."""
    assert [s.holds for s in published.inputs()] == [True] * 6
    assert [s.holds for s in published.readings()] == [True, True, False]
    a, c = 0.5150 + 1.75 * 1.2707, 0.3778 - 1.75 * 0.6578
    assert a > c
    assert f"A {a:.2f}t" in published.readings()[2].follows
    # with the other sign it would be C's: 0.3778 + 1.75 * 0.6578 against -1.71 and -3.28
    assert (published.W_U @ np.array([-1.0, -1.75])).argmax() == 2


def test_the_cycle_knows_its_answers():
    task = Cycle()
    np.testing.assert_array_equal(task.sequences(), [[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]])
    np.testing.assert_array_equal(task.posterior(jnp.array([0, 2])), [[0, 1, 0], [1, 0, 0]])
    example = jax.vmap(lambda key: task.sample((), key=key))(
        jax.random.split(jax.random.key(0), 200)
    )
    assert {tuple(row) for row in np.asarray(example.tokens).tolist()} == {
        (0, 1, 2),
        (1, 2, 0),
        (2, 0, 1),
    }
    np.testing.assert_array_equal(example.targets, (example.tokens + 1) % 3)
    assert task.token_names == ("A", "B", "C")
    assert task.loss_floor() == 0


# judges on planted models -------------------------------------------------------------------------------------------------

OTHERS = (MLP, POST, PRE)


def on_a_circle(spec, length):
    """Three tokens on a circle, each read out as the next one; attention adds nothing.

    The right logit is `length` and the others length cos(120 degrees) = -length / 2.
    """
    params, turns = silent(spec), 2 * np.pi / 3 * np.arange(3)
    places = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    params["embed.W_E"][:] = places
    params["unembed.W_U"][:] = length * np.roll(places, 1, axis=0).T
    return params


def loss_on_a_circle(length):
    return np.log1p(2 * np.exp(-1.5 * length))


def learned(scale, lengths):
    """Evidence whose seeds stand on circles so large, and whose other readings say nothing."""
    conditions = build_conditions(scale)
    models = [on_a_circle(conditions[ABC].spec, length) for length in lengths]
    runs = {ABC: planted(conditions[ABC].spec, len(models), params=models)}
    runs |= {
        name: planted(conditions[name].spec, 8, params=silent(conditions[name].spec))
        for name in OTHERS
    }
    return evidence_of(runs, scale)


LARGE, SMALL, NONE = (
    7.0,
    6.0,
    0.0,
)  # sure enough for W1, right but not sure enough, and no answer at all


@pytest.fixture(scope="module")
def cycles():
    """What `cycle` reads in every condition: in the large, the small and the silent circle, and in silent other readings."""
    evidence = learned("full", [LARGE, SMALL, NONE])
    return {name: evidence.measure(name, judges.cycle) for name in (ABC, *OTHERS)}


def test_losses_of_planted_circles_are_what_they_should_be(cycles):
    assert loss_on_a_circle(LARGE) < 0.7 * judges.REACHED
    assert loss_on_a_circle(SMALL) > 1.3 * judges.REACHED
    found = cycles[ABC]
    expected = [loss_on_a_circle(length) for length in (LARGE, SMALL, NONE)]
    np.testing.assert_allclose(found["loss"], expected, rtol=0.01)
    assert expected[2] == np.log(3)
    np.testing.assert_allclose(
        found["accuracy"], [1, 1, 1 / 3]
    )  # a silent model says A, which is right for one token in three
    for name in OTHERS:
        np.testing.assert_allclose(cycles[name]["loss"], np.log(3), rtol=1e-5)


@pytest.mark.parametrize(
    ("large", "full", "quick"),
    [(10, "reproduced", "reproduced"), (9, "reproduced", "reproduced"), (8, "partly", "undecided"),
     (2, "partly", "undecided"), (1, "refuted", "undecided")],
)  # fmt: skip
def test_learning_the_cycle_is_judged_by_its_loss(large, full, quick, cycles):
    """W1: right answers are not enough, and other readings have no say."""
    for rest in (1, 2):
        rows = [0] * large + [rest] * (SEEDS - large)
        measured = {(ABC, judges.cycle): rows_of(cycles[ABC], rows)}
        for name in OTHERS:
            measured[name, judges.cycle] = rows_of(cycles[name], range(8))
        for scale, verdict in zip(SCALES, (quick, full), strict=True):
            outcome = judges.learns(
                evidence_of(scale=scale, measured=measured, conditions=build_conditions(scale))
            )
            assert outcome.verdict == verdict
            assert outcome.value == large / SEEDS
            assert "Other readings: mlp 0%, post 0%, pre 0%" in outcome.sentence


def looks_back(spec):
    """Knows every successor, but is right only while it looks at the first position.

    Directions of the stream: three tokens, a mark of the first position, and a preference for A. Every position prefers A more
    than it knows its successor; what stands at the first position takes the preference away.
    """
    params = silent(spec)
    tokens, mark, prefers = np.arange(3), 3, 4
    params["embed.W_E"][tokens, tokens] = 1
    params["pos_embed.W_pos"][:, prefers] = 1
    params["pos_embed.W_pos"][0, mark] = 1
    params["blocks.0.attn.b_Q"][0, 0] = 400.0
    params["blocks.0.attn.W_K"][0, mark, 0] = 1
    params["blocks.0.attn.W_V"][0, mark, 0] = 1
    params["blocks.0.attn.W_O"][0, 0, prefers] = -1
    params["unembed.W_U"][tokens, (tokens + 1) % 3] = 10
    params["unembed.W_U"][prefers, 0] = 20
    return params


def looks_at_itself(spec):
    """The same without the preference: the last token is all it needs."""
    params = looks_back(spec)
    params["unembed.W_U"][4] = 0
    return params


@pytest.fixture(scope="module")
def five_dimensions():
    """What `cycle` reads in three models of five dimensions, in which each thing has a direction of its own."""
    spec = build_conditions("full")[ABC].spec
    spec = spec.model_copy(update={"model": spec.model.model_copy(update={"d_model": 5})})
    models = [looks_at_itself(spec), looks_back(spec), silent(spec)]
    return evidence_of({ABC: planted(spec, 3, params=models)}).measure(ABC, judges.cycle)


def test_the_planted_models_need_what_they_should(five_dimensions):
    np.testing.assert_allclose(five_dimensions["accuracy"], [1, 1, 1 / 3])
    # one token is followed by A, and the first of three positions looks at itself anyway: 1/3 + 2/3 * 1/3
    np.testing.assert_allclose(
        five_dimensions["accuracy last token"], [1, 1 / 3 + 2 / 3 * 1 / 3, 1 / 3], rtol=1e-6
    )
    np.testing.assert_allclose(
        five_dimensions["accuracy no attention"], [1, 1 / 3, 1 / 3], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("itself", "back", "mute", "verdict"),
    [
        (10, 0, 0, "reproduced"),
        (9, 1, 0, "reproduced"),
        (8, 2, 0, "partly"),
        (1, 9, 0, "refuted"),
        (0, 10, 0, "refuted"),
        (8, 0, 2, "reproduced"),  # who does not answer the cycle is not asked what he needs
        (7, 1, 2, "partly"),
        (7, 0, 3, "undecided"),
    ],
)
def test_needing_the_last_token_alone_is_judged_among_those_who_answer(
    itself, back, mute, verdict, five_dimensions
):
    """W5."""
    found = rows_of(five_dimensions, [0] * itself + [1] * back + [2] * mute)
    evidence = evidence_of(
        measured={(ABC, judges.cycle): found}, conditions=build_conditions("full")
    )
    outcome = judges.facts(evidence)
    assert outcome.verdict == verdict
    if verdict == "undecided":
        assert outcome.sentence == "Only 7 seeds answer the whole cycle."
    else:
        assert outcome.value == itself / (itself + back)
