"""The explorer's own forward pass and its walk, in a real browser,
for every row of the layer tables.
"""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from explorer_page import (
    choose,
    launch_browser,
    needs_browser,
    open_part,
    planted_piece,
    shown,
    unfold,
    watched_tab,
)
from layer_rows import PROMPT, ROWS, model_of

from mnemoscope.core.errors import UserError
from mnemoscope.explorer import build_page, pack_run
from mnemoscope.explorer.pack import SUPPORT, resolve_config
from mnemoscope.models import ModelConfig, Transformer
from mnemoscope.models.activations import ACTIVATIONS
from mnemoscope.models.attention_kinds import ATTENTION
from mnemoscope.models.consumer_support import Support
from mnemoscope.models.norms import NORMS
from mnemoscope.models.positions import POSITIONS
from mnemoscope.probes.ablation import build_edits, list_cases
from mnemoscope.tasks import Cycle

TABLES = {
    "act": ("ACTIVATIONS", ACTIVATIONS),
    "attention": ("ATTENTION", ATTENTION),
    "norm_type": ("NORMS", NORMS),
    "positions": ("POSITIONS", POSITIONS),
}
MORE = {
    "GPT-J": {
        "norm": "pre",
        "act": "gelu_new",
        "positions": "rotary",
        "d_head": 6,
        "rotary_dim": 4,
        "rotary_adjacent_pairs": True,
        "parallel_attn_mlp": True,
        "tied": True,
    },
    "two pairs of three": {
        "positions": "rotary",
        "d_head": 6,
        "rotary_dim": 4,
        "rotary_base": 50.0,
    },
    "BERT": {"norm": "post", "act": "gelu", "causal": False, "positions": "sinusoidal"},
    "linear attention, not causal": {
        "attention": "linear",
        "causal": False,
        "positions": "none",
        "attn_residual": False,
        "norm": "pre",
        "norm_type": "rms",
    },
    "relu attention, shared, turned, post": {
        "attention": "relu",
        "n_key_value_heads": 2,
        "positions": "rotary",
        "rotary_adjacent_pairs": True,
        "norm": "post",
        "norm_type": "rms",
        "norm_eps": 0.02,
        "gated_mlp": True,
        "act": "gelu",
        "d_head": 6,
    },
    "nothing but embeddings": {"attn_layers": (), "mlp_layers": ()},
    "one layer, one head, no feed-forward": {"n_layers": 1, "n_heads": 1, "d_mlp": 0},
}
MODELS = ROWS | MORE
# fields that change which parameters there are, or how large: without them these do not fit
BY_PARAMETERS = {
    "attn_layers",
    "bias",
    "d_mlp",
    "mlp_layers",
    "n_heads",
    "n_key_value_heads",
    "n_layers",
    "tied",
    "unembed_bias",
}
# parallel or not, where no layer has both parts
SAME_EITHER_WAY = {"parallel, a part in each layer"}
# what formulas have beside the names of lines and biases
WORDS = {
    *ACTIVATIONS,
    *ATTENTION,
    *("norm", "rms", "mask", "rotate", "rows", "of", "sines", "and", "cosines", "positions"),
    "W_pos",
}
# the runs of a whole page
PACKED = {
    "Llama": MODELS["Llama"],
    "GPT-J": MODELS["GPT-J"],
    "BERT": MODELS["BERT"],
    "linear attention": {"attention": "linear", "positions": "none", "attn_layers": (1,)},
}
SIZES = {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_mlp": 5}
# `build` makes a model of what `as_json` gives, `edited` edits of what `silenced` gives
HELPERS = """
    const { forward } = await import('forward.js');
    const { buildWalk } = await import('walk.js');
    const build = ({ config, params }) => {
        const read = ([shape, numbers]) => ({ shape, data: new Float32Array(numbers) });
        const entries = Object.entries(params).map(([name, value]) => [name, read(value)]);
        return { config, params: Object.fromEntries(entries) };
    };
    const edited = ({ heads, mlps }, length) => {
        const zeros = (width) => Array.from({ length }, () => new Array(width).fill(0));
        const fill = (widths) =>
            Object.fromEntries(Object.entries(widths).map(([key, width]) => [key, zeros(width)]));
        return { heads: fill(heads), mlps: fill(mlps) };
    };
"""
LOGITS = """
    const edits = parts.map((part) => edited(part, tokens.length));
    return edits.map((edit) => forward(build(model), tokens, edit).logits);
"""
# every line of the walk, with its cells that are not what their arithmetic says
WALK = """
    const read = build(model);
    const edits = edited(parts[0], tokens.length);
    const names = Array.from({ length: 6 }, (_, token) => `t${token}`);
    const steps = buildWalk(read, forward(read, tokens, edits), names, edits);
    const total = ({ terms, addends, after }) => {
        const products = terms.map(([, a, b]) => a * b);
        const sum = [...products, ...addends.map(([, x]) => x)].reduce((all, x) => all + x, 0);
        return after ? after.apply(sum) : sum;
    };
    const judge = (line, x, i, j) => {
        const how = line.derive(i, j);
        const isSum = how.terms.length > 0 || how.addends.length > 0;
        if (!isSum) return how.note ? 'told' : 'unexplained';
        const isClose = Math.abs(total(how) - x) <= 1e-9 * Math.max(1, Math.abs(x));
        return isClose ? 'sum' : `${i},${j} is ${x}, not ${total(how)}`;
    };
    const look = (line) => ({
        name: line.name,
        formula: line.formula,
        judged: line.values.flatMap((row, i) => row.map((x, j) => judge(line, x, i, j))),
    });
    return steps.map(({ title, lines }) => ({ title, lines: lines.map(look) }));
"""


@pytest.fixture(scope="module")
def pieces():
    return {
        name: planted_piece(name, Cycle(n_symbols=5, length=6), ModelConfig(**SIZES | fields), 1)
        for name, fields in PACKED.items()
    }


@pytest.fixture(scope="module")
def address(pieces, tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    path.write_text(build_page([pack_run(each) for each in pieces.values()]))
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    yield from launch_browser()


@pytest.fixture(scope="module")
def page(browser, address):
    """One page that is asked for numbers, and never clicked."""
    with watched_tab(browser, address) as page:
        yield page


@pytest.fixture
def tab(browser, address):
    with watched_tab(browser, address) as tab:
        yield tab


def ask(page, script, model, parts):
    """What the page computes for a model and the prompt, with parts silenced."""
    text = f"async ([model, tokens, parts]) => {{ {HELPERS} {script} }}"
    return page.evaluate(text, [model, PROMPT, parts])


def as_json(model, **changed):
    """A model as the page builds its own: the packed config, and parameters as rows of floats."""
    params = {
        name: [list(value.shape), np.asarray(value).ravel().tolist()]
        for name, value in model.params.items()
    }
    return {"config": resolve_config(model.config) | changed, "params": params}


def silenced(config):
    """What the cases of `edits` silence, with the widths of what is silent."""
    every = {}
    for case in list_cases(config):
        found = re.fullmatch(r"L(\d+)(?:H(\d+)| (attention|mlp))", case)
        layer, head, part = found.groups() if found else (None, None, None)
        heads = range(config.n_heads) if part == "attention" else [head] if head else []
        every[case] = {
            "heads": {f"{layer}.{each}": config.d_head for each in heads},
            "mlps": {layer: config.d_model} if part == "mlp" else {},
        }
    return every


def python_logits(model, n_cases):
    """Python's logits in float64, whole and with each part silenced."""
    with jax.enable_x64(True):
        params = {name: jnp.asarray(value, jnp.float64) for name, value in model.params.items()}
        run = jax.jit(lambda edit: Transformer(model.config, params)(jnp.array(PROMPT), edit))
        stacked = build_edits(model.config)
        each = [jax.tree.map(lambda x, n=n: x[n], stacked) for n in range(n_cases)]
        return np.array([run(edit) for edit in each])


@needs_browser
@pytest.mark.parametrize("name", MODELS)
def test_every_row_has_pythons_logits_whole_and_with_parts_silenced(page, name):
    """In doubles on both sides, far closer than the badge asks for."""
    model = model_of(MODELS[name])
    assert SUPPORT.why_not(model.config) is None
    parts = silenced(model.config)
    expected = python_logits(model, len(parts))
    assert expected.dtype == np.float64
    found = np.array(ask(page, LOGITS, as_json(model), list(parts.values())))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    for case, logits in zip(parts, expected, strict=True):
        assert case == "none" or np.abs(logits - expected[0]).max() > 1e-3, f"{case} does nothing"


@needs_browser
@pytest.mark.parametrize("name", sorted(MODELS.keys() - SAME_EITHER_WAY))
def test_the_page_reads_every_field(page, name):
    """With one field back at its default it computes something else: the comparison can fail."""
    model = model_of(MODELS[name])
    plain = resolve_config(ModelConfig(**SIZES))
    whole = [silenced(model.config)["none"]]
    found = np.array(ask(page, LOGITS, as_json(model), whole))
    # learned positions are parameters
    plain["positions"] = "none" if model.config.positions == "sinusoidal" else "sinusoidal"
    # the angle of the first pair has no base, and one pair no layout
    silent = {"rotary_base", "rotary_adjacent_pairs"} if model.config.rotary_dim == 2 else set()
    for field in MODELS[name].keys() - BY_PARAMETERS - silent:
        if MODELS[name][field] != plain[field]:
            other = ask(page, LOGITS, as_json(model, **{field: plain[field]}), whole)
            assert np.abs(np.array(other) - found).max() > 1e-3, field


@needs_browser
@pytest.mark.parametrize("name", MODELS)
def test_every_cell_of_the_walk_adds_up(page, name):
    """Each formula is of lines before it, and each cell is what its arithmetic says."""
    model = model_of(MODELS[name])
    every = list(silenced(model.config).values())
    for part in [*every[:2], every[-1]]:
        known = set()
        for step in ask(page, WALK, as_json(model), [part]):
            for line in step["lines"]:
                assert set(line["judged"]) <= {"sum", "told"}, (name, line)
                parts = set(re.findall(r"[A-Za-z]\w*", line["formula"], re.ASCII)) - WORDS
                assert {each for each in parts if not each.startswith("b_")} <= known, line
                assert line["name"] not in known
                known.add(line["name"])
        assert {"X", "L", "Pr"} <= known


@needs_browser
def test_the_error_function_is_exact(page):
    x = [*np.linspace(-7, 7, 1401), 1e-300, 1e-9, 0.0]
    found = page.evaluate("async (x) => x.map((await import('special.js')).erf)", x)
    np.testing.assert_allclose(found, [math.erf(each) for each in x], rtol=1e-14)


@needs_browser
def test_the_tables_of_the_page_are_what_is_supported(page):
    for field, (name, table) in TABLES.items():
        script = f"async () => Object.keys((await import('layer_tables.js')).{name})"
        assert tuple(page.evaluate(script)) == SUPPORT.values[field] == tuple(table), field


@pytest.mark.parametrize("field", TABLES)
def test_a_row_that_the_page_does_not_have_is_refused(field, monkeypatch):
    """As if the last row of each table were new."""
    *known, new = SUPPORT.values[field]
    lacking = Support("the explorer", {**SUPPORT.values, field: tuple(known)})
    monkeypatch.setattr("mnemoscope.explorer.pack.SUPPORT", lacking)
    model = ModelConfig(d_model=4, n_heads=1, d_mlp=3, norm="pre", **{field: new})
    run = planted_piece("new", Cycle(n_symbols=3, length=4), model, 1)
    allowed = ", ".join(map(repr, known))
    said = f"whose model has {field}={new!r} (allowed: {allowed})"
    with pytest.raises(UserError, match=re.escape(said)) as error:
        pack_run(run)
    assert "\n" not in str(error.value)


def test_the_packed_config_has_every_field_with_its_value(pieces):
    found = resolve_config(ModelConfig(d_model=12, n_heads=3))
    sizes = {"d_head": 4, "n_key_value_heads": 3, "rotary_dim": 4}
    assert found | sizes | {"causal": True, "norm_eps": 1e-5, "act": "relu"} == found
    assert set(SUPPORT.values) <= set(found)
    assert pack_run(pieces["linear attention"])["config"]["attention"] == "linear"


def test_the_page_says_which_kinds_of_layers_a_model_has(pieces):
    about = pieces["Llama"].about
    kinds = {"norm_type rms", "act silu", "gated_mlp True", "positions rotary", "bias False"}
    assert kinds <= set(re.split("[,;] ", about))
    assert "attn_layers (1,)" in pieces["linear attention"].about


def test_a_model_without_parts_is_packed_whole():
    model = ModelConfig(d_model=4, n_heads=1, attn_layers=(), d_mlp=0)
    found = pack_run(planted_piece("bare", Cycle(n_symbols=3, length=4), model, 1))
    assert {tuple(golden["off"]) for golden in found["golden"]} == {()}


@needs_browser
def test_other_kinds_of_layers_have_a_good_badge(tab, pieces):
    badge = tab.locator(".badge")
    assert "good" in badge.get_attribute("class")
    assert float(badge.get_attribute("data-worst")) < 1e-5
    asked = sum(len(pack_run(each)["golden"]) for each in pieces.values())
    assert f"on {asked} prompts" in badge.text_content()


@needs_browser
def test_what_is_unusual_is_told(tab):
    choose(tab, "BERT")
    open_part(tab, "1.0")
    assert "Every position sees the whole prompt." in tab.text_content("#part")
    assert "This model sees the whole prompt, later tokens too." in tab.text_content("#key")
    choose(tab, "linear attention")
    open_part(tab, "1.0")
    assert "The weights of a row do not sum to one" in tab.text_content("#part")
    assert tab.locator("[data-node]").count() == 4 + 2  # no heads in layer 0
    assert len(shown(tab)["attention"][0]) == 0
    assert tab.locator(".heat td:has-text('\u2212')").count() > 0
    choose(tab, "Llama")
    open_part(tab, "1.0")
    assert "do not sum" not in tab.text_content("#part")
    assert "Every position sees" not in tab.text_content("#part")
    titles = tab.locator("#walk summary").all_text_contents()
    assert titles[1] == "2. Attend, layer 0, head 0"
    assert titles[2] == "3. Attend, layer 0, head 1, with the keys and values of head 0"


@needs_browser
def test_a_position_can_be_made_to_look_ahead_where_attention_does(tab):
    choose(tab, "BERT")
    tab.fill("#typed", "ABCD")
    open_part(tab, "0.0")
    tab.click("[data-key='cell-0.0-1-3']")
    np.testing.assert_allclose(shown(tab)["attention"][0][0][1], [0, 0, 0, 1])
    tab.click("[data-key='even-0.0-0']")
    np.testing.assert_allclose(shown(tab)["attention"][0][0][0], [0.25] * 4)
    tab.reload()
    assert shown(tab)["force"] == {"0.0": {"0": "even", "1": 3}}
    tab.fill("#typed", "ABC")
    assert shown(tab)["force"] == {"0.0": {"0": "even"}}
    choose(tab, "Llama")
    open_part(tab, "0.0")
    assert tab.locator("[data-key='cell-0.0-1-2']").count() == 0
    assert tab.locator("[data-key='cell-0.0-1-1']").count() == 1


@needs_browser
def test_a_turned_query_and_a_gate_are_explained_when_clicked(tab):
    choose(tab, "Llama")
    unfold(tab, 1)
    tab.click("[data-key='n-Qrot_0_h0-3-0']")
    text = tab.text_content("#cell")
    assert "Qrot_0_h0 = rotate(Q_0_h0)" in text
    assert "Dimensions 0 and 2 are turned by 3.0000, at position 3." in text
    tab.click("[data-key='n-N_0-1-2']")
    assert "The size of row 1 of X is its root mean square" in tab.text_content("#cell")
    tab.click("[data-key='n-S_0_h0-2-1']")
    assert "sum / √4" in tab.text_content("#cell")
    unfold(tab, 6)
    tab.click("[data-key='n-G_0-1-2']")
    text = tab.text_content("#cell")
    assert "silu(H_0) ⊙ U_0" in text
    assert "silu(H_0[1,2]) · U_0[1,2]" in text
