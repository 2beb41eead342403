"""Two models at once: linked, compared place by place, with the first one where they differ."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from explorer_page import (
    choose,
    launch_browser,
    move_to,
    needs_browser,
    planted_piece,
    shown,
    watched_tab,
)

from mnemoscope.explorer import build_page, pack_run
from mnemoscope.models import ModelConfig, knock_out_head
from mnemoscope.tasks import Cycle, Permutation

PROMPT = [2, 4, 5, 3, 2]
DIFFERENT = 0.25


@pytest.fixture(scope="module")
def pieces():
    task = Permutation(repeat=0.3)
    one = planted_piece("one", task, ModelConfig(d_model=8, n_heads=2, d_mlp=8), 3)
    for value in one.run.snapshots.values():
        value *= 1.7  # answers that are far apart
    return {
        "one": one,
        "deep": planted_piece(
            "deep", task, ModelConfig(d_model=8, n_heads=4, n_layers=2, d_mlp=8, norm="pre"), 2
        ),
        "cycle": planted_piece("cycle", Cycle(), ModelConfig(d_model=4, n_heads=1), 1),
    }


@pytest.fixture(scope="module")
def address(pieces, tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    path.write_text(build_page([pack_run(each) for each in pieces.values()]))
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    yield from launch_browser()


@pytest.fixture
def tab(browser, address):
    with watched_tab(browser, address) as tab:
        tab.fill("#typed", "".join(map(str, PROMPT)))
        yield tab


def distance(p, q):
    return float(np.abs(np.asarray(p) - np.asarray(q)).sum() / 2)


def places(one, other):
    """The distances of two models of one layer and two heads, by a second route."""
    tokens = jnp.array(PROMPT)
    logits, traces = zip(*(each.run_with_trace(tokens) for each in (one, other)), strict=True)

    def read(model, stream):
        return jax.nn.softmax(
            stream[-1] @ model.params["unembed.W_U"] + model.params["unembed.b_U"]
        )

    def stream(site):
        return distance(*(read(m, t[site]) for m, t in zip((one, other), traces, strict=True)))

    patterns = [trace["blocks.0.attn.hook_pattern"][:, -1] for trace in traces]
    pairs = itertools.product(range(2), repeat=2)
    apart = {(i, j): distance(patterns[0][i], patterns[1][j]) for i, j in pairs}
    i, j = min(apart, key=apart.get)
    heads = {i: (j, apart[i, j]), 1 - i: (1 - j, apart[1 - i, 1 - j])}
    names = [
        f"head {i}" if heads[i][0] == i else f"head {i}, beside head {heads[i][0]}"
        for i in range(2)
    ]
    return [
        ("stream after the embedding", stream("blocks.0.hook_resid_pre")),
        (names[0], heads[0][1]),
        (names[1], heads[1][1]),
        ("stream after attention", stream("blocks.0.hook_resid_mid")),
        ("stream at the end of layer 0", stream("blocks.0.hook_resid_post")),
        ("answer", distance(*(jax.nn.softmax(each[-1]) for each in logits))),
    ]


def rows(tab):
    names = tab.locator("#differences th[scope=row]").all_text_contents()
    values = tab.locator("#differences td.value").all_text_contents()
    return list(zip(names, map(float, values), strict=True))


def check_places(tab, one, other):
    expected = places(one, other)
    assert [name for name, _ in rows(tab)] == [name for name, _ in expected]
    np.testing.assert_allclose([x for _, x in rows(tab)], [x for _, x in expected], atol=6e-3)
    # no distance so near the level that rounding decides
    assert min(abs(x - DIFFERENT) for _, x in expected) > 1e-4
    first = next((f"{n} ({x:.2f})." for n, x in expected if x >= DIFFERENT), None)
    said = tab.text_content("#first-difference")
    assert said.endswith(first) if first else said.startswith("Nowhere do ")


@needs_browser
def test_two_seeds_are_linked_and_their_first_difference_is_told(tab, pieces):
    run = pieces["one"].run
    assert tab.locator("#beside-section").is_hidden()
    tab.select_option("#beside", label="seed 1")
    assert tab.locator("#answer svg").count() == 2
    check_places(tab, run.model(0), run.model(1))
    assert "The first place where seed 0 and seed 1, at step 30, differ by 0.25 or more: " in (
        tab.text_content("#first-difference")
    )
    beside = shown(tab)["beside"]
    expected = jax.nn.softmax(run.model(1)(jnp.array(PROMPT)))
    np.testing.assert_allclose(beside["probabilities"], expected, atol=1e-5)
    answer = np.asarray(expected)[-1]
    assert f" Seed 1: {answer.argmax()} (" in tab.text_content("#summary")
    # time is linked
    steps = run.spec.snapshot_steps()
    move_to(tab, 1)
    assert shown(tab)["beside"]["step"] == steps[1]
    check_places(tab, run.model(0, 1), run.model(1, 1))
    # and what is knocked out
    tab.click("[data-key='node-0.0']")
    edit = knock_out_head(run.spec.model, 0, 0)
    logits = run.model(1, 1)(jnp.array(PROMPT), (edit,))
    now = shown(tab)["beside"]["probabilities"]
    np.testing.assert_allclose(now, jax.nn.softmax(logits), atol=1e-5)
    # the address has it
    before = shown(tab)
    tab.reload()
    assert shown(tab) == before
    # a model does not stand beside itself
    tab.select_option("#seed", "1")
    assert tab.locator("#beside-section").is_hidden()
    assert "with=" not in tab.url


@needs_browser
def test_the_same_weights_differ_nowhere(browser, pieces, tmp_path):
    one, other = (pack_run(pieces["one"]) for _ in range(2))
    other |= {"id": "copy", "name": "copy"}
    (tmp_path / "page.html").write_text(build_page([one, other]))
    with watched_tab(browser, (tmp_path / "page.html").as_uri() + "#with=copy:0") as tab:
        assert {value for _, value in rows(tab)} == {0}
        said = "Nowhere do one, seed 0 and copy, seed 0, at step 30, differ by 0.25 or more"
        assert said in tab.text_content("#first-difference")


@needs_browser
def test_two_models_of_other_shapes_are_compared_where_both_have_something(tab, address):
    options = tab.locator("#beside option").all_text_contents()
    assert options == ["nothing", "seed 1", "seed 2", "deep, seed 0", "deep, seed 1"]
    tab.select_option("#beside", label="deep, seed 1")
    names = [name for name, _ in rows(tab)]
    assert len(names) == 1 + 2 + 2 + 1
    choose(tab, "deep")
    assert tab.locator("#beside-section").is_hidden()
    tab.select_option("#beside", label="seed 1")
    assert len(rows(tab)) == 1 + 2 * (4 + 2) + 1
    choose(tab, "cycle")  # nobody there can be asked the same
    assert tab.locator("#beside").count() == 0


@needs_browser
def test_a_model_that_cannot_stand_beside_is_named(tab, address, pieces):
    for asked in (f"{pieces['cycle'].id}:0", f"{pieces['one'].id}:0", "none:0"):
        tab.goto("about:blank")
        tab.goto(f"{address}#with={asked}")
        tab.wait_for_selector(".badge.good")
        assert f"second model “{asked}”" in tab.text_content("#notice")
        assert tab.locator("#beside-section").is_hidden()
