"""The explorer in a real browser: every control is used,
and what is shown is compared with the Python model.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from explorer_page import (
    choose,
    launch_browser,
    move_to,
    needs_browser,
    open_part,
    piece,
    planted_piece,
    shown,
    summary,
    unfold,
    watched_tab,
)

from mnemoscope.cli import visualize
from mnemoscope.core.errors import UserError
from mnemoscope.core.theme import COLORS
from mnemoscope.execution.local import load_or_train
from mnemoscope.explorer import ExplorerRun, build_page, describe_run, pack_run
from mnemoscope.explorer.featured import describe_featured, featured_runs
from mnemoscope.explorer.task_adapters import Adapter, get_adapter, register_adapter
from mnemoscope.models import ModelConfig, knock_out_head, knock_out_mlp
from mnemoscope.probes.skills import both_skills
from mnemoscope.store import Store
from mnemoscope.studies.discover import STUDIES
from mnemoscope.studies.study import Condition
from mnemoscope.tasks import Cycle, Permutation
from mnemoscope.training.spec import Spec

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&<b>"
SHAPES = {
    "two heads": (Permutation(repeat=0.3), ModelConfig(d_model=8, n_heads=2, d_mlp=16)),
    "two layers, pre": (
        Permutation(),
        ModelConfig(d_model=8, n_heads=2, n_layers=2, d_mlp=12, norm="pre"),
    ),
    "tied, post, no feed-forward": (
        Cycle(),
        ModelConfig(d_model=4, n_heads=1, d_mlp=0, norm="post", tied=True),
    ),
    "no bias": (
        Cycle(n_symbols=26, length=5),
        ModelConfig(d_model=2, n_heads=1, d_mlp=4, bias=False),
    ),
    "wide": (Permutation(n_symbols=4), ModelConfig(d_model=32, n_heads=4, d_mlp=64, norm="post")),
}


@pytest.fixture(scope="module")
def pieces():
    """One of them trained."""
    first, *others = SHAPES.items()
    return {
        name: make(name, *shape)
        for make, (name, shape) in ((piece, first), *((planted_piece, one) for one in others))
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
        yield tab


@needs_browser
def test_the_page_agrees_with_python_on_every_shape(tab):
    badge = tab.locator(".badge")
    assert "good" in badge.get_attribute("class")
    assert float(badge.get_attribute("data-worst")) < 1e-5
    assert "from Python on" in badge.text_content()


@needs_browser
def test_a_wrong_weight_turns_the_badge_red(browser, pieces, tmp_path):
    one = pack_run(pieces["two heads"])
    one["golden"][0]["probabilities"][0][1] += 2e-4
    (tmp_path / "bad.html").write_text(build_page([one]))
    tab = browser.new_page()
    tab.goto((tmp_path / "bad.html").as_uri())
    tab.wait_for_selector(".badge.bad")
    tab.close()


@needs_browser
def test_prompts_are_typed_clicked_drawn_and_checked(tab, pieces):
    tab.fill("#typed", "2431")
    assert summary(tab).startswith("After 2431 the model says")
    assert tab.locator("#answers svg").count() == 2
    tab.click("#keys button:has-text('5')")
    assert tab.input_value("#typed") == "24315"
    tab.click("[data-key=back]")
    assert tab.input_value("#typed") == "2431"
    tab.fill("#typed", "249")
    assert "Unknown token “9”; allowed: 1 to 9 of 0 1 2 3 4 5." in tab.text_content("#warning")
    assert tab.get_attribute("#typed", "aria-invalid") == "true"
    assert summary(tab).startswith("After 2431")
    tab.fill("#typed", "")
    assert "The prompt is empty" in tab.text_content("#warning")
    tab.fill("#typed", "1234512345")
    assert "10 tokens are too many" in tab.text_content("#warning")
    tab.fill("#typed", "2425")
    assert "2 is paired with 4 and with 5: no permutation does that." in tab.text_content(
        "#warning"
    )
    tab.click("#presets button:has-text('the paper\\'s trap')")
    assert tab.input_value("#typed") == "245345322"
    assert tab.text_content("#warning") == ""
    tab.click("#presets button:has-text('a random held-out sequence')")
    drawn = [int(c) for c in tab.input_value("#typed")]
    run = pieces["two heads"].run
    held_out = np.asarray(run.world(0).held_out).tolist()
    pairs = dict(zip(drawn[0:8:2], drawn[1:8:2], strict=True))
    assert any(all(mapping[x - 1] + 1 == y for x, y in pairs.items()) for mapping in held_out)


@needs_browser
def test_answers_and_oracles_are_the_exact_ones(tab, pieces):
    prompt = [2, 4, 5, 3, 4, 5, 3, 2, 2]
    tab.fill("#typed", "".join(map(str, prompt)))
    numbers, run = shown(tab), pieces["two heads"].run
    model, task = run.model(0), run.spec.task
    np.testing.assert_allclose(
        numbers["probabilities"], jax.nn.softmax(model(jnp.array(prompt))), atol=1e-5
    )
    everything = np.asarray(task.posterior(jnp.array(prompt)))
    trained = np.asarray(task.posterior(jnp.array(prompt), run.world(0)))
    for step, exact in enumerate(numbers["exact"]):
        assert exact["position"] == 2 * step
        np.testing.assert_allclose(exact["all mappings"], everything[step], atol=1e-6)
        if exact["training mappings"] is None:
            assert np.isnan(trained[step]).all()
        else:
            np.testing.assert_allclose(exact["training mappings"], trained[step], atol=1e-6)
    last = tab.locator("#answers svg").last
    assert "4 100%" in last.get_attribute("aria-label")  # the recall answer, by all mappings
    assert last.locator("text:has-text('★')").count() == 1
    assert last.locator("text.used").count() == 3  # 2, 3 and 5 are used; 4 is the answer


@needs_browser
def test_an_ablated_head_changes_the_answer_as_in_python(tab, pieces):
    prompt = "243125"
    tab.fill("#typed", prompt)
    before = shown(tab)["probabilities"]
    open_part(tab, "0.1")
    tab.click("[data-key='off-0.1-zero']")
    assert tab.get_attribute("[data-key='off-0.1-zero']", "aria-pressed") == "true"
    run = pieces["two heads"].run
    tokens, edit = jnp.array([int(c) for c in prompt]), knock_out_head(run.spec.model, 0, 1)
    after = shown(tab)["probabilities"]
    np.testing.assert_allclose(after, jax.nn.softmax(run.model(0)(tokens, (edit,))), atol=1e-5)
    assert np.abs(np.array(after) - before).max() > 1e-3
    tab.click("[data-key='off-0.1-mean']")
    mean = shown(tab)["probabilities"]
    assert np.abs(np.array(mean) - after).max() > 1e-6
    tab.click("[data-key='node-mlp0']")
    assert np.abs(np.array(shown(tab)["probabilities"]) - mean).max() > 1e-6
    tab.click("#reset")
    assert shown(tab)["probabilities"] == before
    assert tab.is_disabled("#reset")


@needs_browser
def test_a_knock_out_shows_before_and_after_on_one_screen(tab, pieces):
    """Nothing is scrolled at 1280 x 800; the numbers are Python's."""
    tab.set_viewport_size({"width": 1280, "height": 800})
    prompt = "245345322"
    tab.fill("#typed", prompt)
    assert tab.locator("#answer .ghost").count() == 0
    tab.click("[data-key='node-0.1']")
    tab.click("[data-key='node-mlp0']")
    for part in ("#typed", "#time", "#flow", "#summary", "#answer", "[data-key='node-0.0']"):
        box = tab.locator(part).bounding_box()
        assert box["x"] >= 0, part
        assert box["y"] >= 0, part
        assert box["x"] + box["width"] <= 1280, part
        assert box["y"] + box["height"] <= 800, part
    assert tab.evaluate("scrollY") == 0
    run = pieces["two heads"].run
    tokens, config = jnp.array([int(c) for c in prompt]), run.spec.model
    edits = (knock_out_head(config, 0, 1), knock_out_mlp(0))
    was, now = (np.asarray(jax.nn.softmax(run.model(0)(tokens, edit)[-1])) for edit in ((), edits))
    said = f"was {was.argmax()} ({best(was)}), now {now.argmax()} ({best(now)}), "
    assert (
        summary(tab) == f"After {prompt}: {said}with head 1 knocked out, feed-forward knocked out."
    )
    ghosts = tab.locator("#answer .ghost")
    assert ghosts.count() == (was >= 0.005).sum()
    widths = [float(each.get_attribute("width")) for each in ghosts.all()]
    track = float(tab.locator("#answer .track").first.get_attribute("width"))
    np.testing.assert_allclose(widths, was[was >= 0.005] * track, rtol=1e-3)
    assert tab.locator("[data-node='0.1'] .told").text_content() == "knocked out"
    tab.click("[data-key='node-0.1']")
    tab.click("[data-key='node-mlp0']")
    assert summary(tab) == f"After {prompt} the model says {was.argmax()} ({best(was)})."


def best(probabilities):
    """The largest share as the page writes it."""
    percent = 100 * float(probabilities.max())
    return f"{percent:.1f}%" if percent < 10 else f"{percent:.0f}%"


@needs_browser
def test_every_part_opens_its_numbers_in_the_drawing(tab):
    tab.fill("#typed", "2431")
    assert tab.locator("#part-section").is_hidden()
    for part, name, matrix in (
        ("embed", "Embedding", "X"),
        ("0.1", "Head 1", "A_h1"),
        ("mlp0", "Feed-forward", "G"),
        ("unembed", "Unembedding", "L"),
    ):
        open_part(tab, part)
        assert tab.text_content("#part h2") == name
        assert f"part={part}" in tab.url
        assert tab.locator(f"#numbers [data-key='n-{matrix}-3-0']").count() == 1
        assert tab.locator("#part table.heat").count() == (part == "0.1")
    tab.click("#numbers [data-key='n-L-3-0']")
    assert tab.text_content("#cell h3").startswith("L[3,0] = ")
    tab.click("[data-key='numbers-unembed']")
    assert tab.locator("#part-section").is_hidden()


@needs_browser
def test_an_answer_that_no_training_asked_for_says_so(tab):
    tab.fill("#typed", "24")
    said = "No training asked for an answer after position 1: what follows it was never learned."
    assert said in tab.text_content("#warning")
    assert tab.text_content("#readings") == ""
    tab.fill("#typed", "245345322")
    assert tab.text_content("#warning") == ""
    assert tab.text_content("#readings") == "Here recall says 4, elimination says 1."


def channels(color):
    return np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def luminance(shares):
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("full", ["heat", "cold"])
def test_numbers_can_be_read_on_every_shade_of_attention(theme, full):
    """White on light blue was 2.6 to 1."""
    ink, paper, color = (getattr(COLORS[name], theme) for name in ("ink", "paper", full))
    for share in np.linspace(0, 1, 21):
        mixed = share * channels(color) + (1 - share) * channels(paper)
        low, high = sorted((luminance(channels(ink)), luminance(mixed)))
        assert (high + 0.05) / (low + 0.05) >= 4.5


@needs_browser
def test_an_attention_row_can_be_forced_and_read(tab):
    tab.fill("#typed", "2431")
    open_part(tab, "0.0")
    tab.hover("[data-key='cell-0.0-3-1']")
    assert "In head 0, 3 1 attends to 1 4 with weight" in tab.text_content("#attended")
    tab.click("[data-key='cell-0.0-3-1']")
    np.testing.assert_allclose(shown(tab)["attention"][0][0][3], [0, 1, 0, 0])
    tab.click("[data-key='even-0.0-2']")
    np.testing.assert_allclose(shown(tab)["attention"][0][0][2], [1 / 3, 1 / 3, 1 / 3, 0])
    tab.click("[data-key='cell-0.0-3-1']")
    tab.click("[data-key='even-0.0-2']")
    assert shown(tab)["force"] == {}


@needs_browser
def test_the_keyboard_is_enough(tab):
    tab.fill("#typed", "2431")
    tab.focus("[data-key='numbers-0.0']")
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.dataset.key") == "numbers-0.0"
    tab.focus("[data-key='cell-0.0-0-0']")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    assert "1 4 attends to 1 4" in tab.text_content("#attended")
    tab.keyboard.press("Enter")
    assert shown(tab)["force"] == {"0.0": {"1": 1}}
    tab.focus("[data-key='node-0.0']")
    tab.keyboard.press("Space")
    # focus survives the redrawing
    assert tab.evaluate("document.activeElement.dataset.key") == "node-0.0"
    assert "off=0.0%3Azero" in tab.url
    tab.keyboard.press("Space")
    assert "off=" not in tab.url
    tab.focus("#time")
    tab.keyboard.press("ArrowLeft")
    assert tab.text_content("#step") != "step 30 of 30"
    names = tab.evaluate("""
        [...document.querySelectorAll('button, input, select, [role=button], svg')]
            .filter(e => !e.hasAttribute('aria-hidden'))
            .filter(e => !(
                e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length
            ))
            .map(e => e.outerHTML)
    """)
    assert names == []


@needs_browser
def test_time_seed_and_model_are_followed_everywhere(tab, pieces):
    run = pieces["two heads"].run
    steps = run.spec.snapshot_steps()
    tab.fill("#typed", "2431")
    for at in range(len(steps)):
        move_to(tab, at)
        assert tab.text_content("#step") == f"step {steps[at]} of {steps[-1]}"
        expected = jax.nn.softmax(run.model(0, at)(jnp.array([2, 4, 3, 1])))
        np.testing.assert_allclose(shown(tab)["probabilities"], expected, atol=1e-5)
    tab.click("[data-key='seed-recall-1']")
    expected = jax.nn.softmax(run.model(1)(jnp.array([2, 4, 3, 1])))
    np.testing.assert_allclose(shown(tab)["probabilities"], expected, atol=1e-5)
    tab.click("[data-key='seed-elimination-2']")  # in the file with its end alone
    expected = jax.nn.softmax(run.model(2)(jnp.array([2, 4, 3, 1])))
    np.testing.assert_allclose(shown(tab)["probabilities"], expected, atol=1e-5)
    assert tab.is_disabled("#time")
    assert "only the end of training" in tab.text_content("#only")
    tab.select_option("#seed", "0")
    assert tab.is_enabled("#time")
    choose(tab, "no bias")
    assert tab.locator("#keys button").count() == 26 + 1
    assert tab.locator("[data-node]").count() == 2
    choose(tab, "two layers, pre")
    assert tab.locator("[data-node]").count() == 2 * (2 + 1)


@needs_browser
def test_play_runs_through_training_and_stops(tab):
    assert tab.text_content("#play") == "Play"
    # clicked and read in one go: on a busy machine it could be over
    # before the second question arrives
    clicked = """(() => {
        const play = document.getElementById('play');
        play.click();
        return play.textContent;
    })()"""
    assert tab.evaluate(clicked) == "Pause"
    tab.wait_for_function("document.getElementById('play').textContent === 'Play'")
    assert tab.text_content("#step") == "step 30 of 30"
    assert tab.locator("#curves svg").count() == 2
    assert tab.locator("#curves .cursor").count() == 2


@needs_browser
def test_a_number_is_explained_when_clicked(tab):
    tab.fill("#typed", "2431")
    unfold(tab, 0)
    tab.click("[data-key='n-X-1-0']")
    text = tab.text_content("#cell")
    assert "X = E + P" in text
    assert "E[1,0]" in text
    assert "P[1,0]" in text
    tab.click("[data-key=close]")
    assert tab.text_content("#cell") == ""


@needs_browser
def test_open_numbers_follow_time_and_edits(tab, pieces):
    run = pieces["two heads"].run
    tab.fill("#typed", "2431")
    unfold(tab, 0)
    for at in (0, 3):
        move_to(tab, at)
        cell = tab.text_content("[data-key='n-X-1-0']")
        params = {name: np.asarray(value) for name, value in run.model(0, at).params.items()}
        assert float(cell) == pytest.approx(
            params["embed.W_E"][4, 0] + params["pos_embed.W_pos"][1, 0], abs=6e-4
        )
    unfold(tab, 1)
    # one at a time
    tab.wait_for_function("document.querySelectorAll('#walk details[open]').length === 1")
    tab.click("[data-key='node-0.0']")
    assert {tab.text_content(f"[data-key='n-Z_h0-{i}-0']") for i in range(4)} == {"0.000"}


@needs_browser
def test_large_matrices_are_folded_until_asked(tab):
    choose(tab, "wide")
    unfold(tab, 6)
    assert tab.locator("[data-line] td[data-key^='n-W_in-']").count() == 10 * 10
    tab.click("[data-key='all-W_in']")
    assert tab.locator("[data-line] td[data-key^='n-W_in-']").count() == 32 * 64
    tab.click("[data-key='n-W_in-31-63']")
    assert "W_in[31,63]" in tab.text_content("#cell")


@needs_browser
def test_the_address_holds_the_whole_view(tab, browser):
    choose(tab, "two layers, pre")
    tab.fill("#typed", "31425")
    tab.click("[data-key='seed-recall-1']")
    open_part(tab, "1.0")
    tab.click("[data-key='off-1.0-mean']")
    tab.click("[data-key='node-mlp1']")
    open_part(tab, "0.1")
    tab.click("[data-key='cell-0.1-2-1']")
    open_part(tab, "1.1")
    tab.click("[data-key='even-1.1-3']")
    move_to(tab, 2)
    unfold(tab, 1)
    first = shown(tab)
    other = browser.new_page()
    other.goto(tab.url)
    other.wait_for_selector(".badge")
    second = shown(other)
    assert first == second
    assert first["off"] == {"1.0": "mean", "mlp1": "zero"}
    assert first["force"] == {"0.1": {"2": 1}, "1.1": {"3": "even"}}
    assert other.locator("#part h2").text_content() == "Layer 1, head 1"
    assert other.locator("#notice").is_hidden()
    assert other.locator("#walk details[open]").count() == 1
    other.close()


@needs_browser
@pytest.mark.parametrize(
    ("address_end", "told"),
    [
        (
            "#run=none&seed=x&at=-4&prompt=99&off=9.9:zero,mlp7:mean&force=a:b",
            "run “none”, seed “x”, prompt “99”, snapshot “-4”, knock-out “9.9:zero”, "
            "knock-out “mlp7:mean”, forced row “a:b”. ",
        ),
        ("#%%%", "field “%%%”. "),
        ("#at=1e9&open=abc", "snapshot “1e9”, step of the walk “abc”. "),
        (
            f"#part=3.9&stop=9&with=nobody:7&seed={'7' * 50}",
            f"seed “{'7' * 40}…”, part “3.9”, second model “nobody:7”, step of a tour “9”. ",
        ),
    ],
)
def test_a_broken_address_shows_the_page_all_the_same(tab, address, address_end, told):
    tab.goto("about:blank")
    tab.goto(address + address_end)
    tab.wait_for_selector(".badge.good")
    assert tab.locator("#answers svg").count() > 0
    assert shown(tab)["off"] == {}
    start = "The address names what this file does not have: "
    end = "What stands there instead is the default."
    assert tab.text_content("#notice") == f"{start}{told}{end}"
    tab.click("[data-key=back]")
    assert tab.locator("#notice").is_hidden()


@needs_browser
def test_the_figure_can_be_had_alone(tab):
    with tab.expect_download() as waiting:
        tab.click("#svg")
    with open(waiting.value.path()) as file:
        text = file.read()
    assert text.startswith("<svg")
    assert f"fill: {COLORS['ink'].light}" in text, "the page's colors on light paper"
    assert "two heads, seed 0, step 30, prompt" in text


@needs_browser
def test_names_become_text_and_not_markup(browser, tmp_path):
    bad = planted_piece("x", *SHAPES["two heads"], seeds=1)
    bad = ExplorerRun(HOSTILE, HOSTILE, HOSTILE, bad.run, bad.carried)
    (tmp_path / "hostile.html").write_text(build_page([pack_run(bad)]))
    tab, trouble = browser.new_page(), []
    tab.on("dialog", lambda dialog: trouble.append(dialog.message))
    tab.on("pageerror", lambda error: trouble.append(str(error)))
    tab.goto((tmp_path / "hostile.html").as_uri())
    tab.wait_for_selector(".badge.good")
    assert tab.locator("img").count() == 0
    assert tab.locator("#run option").text_content() == HOSTILE
    assert trouble == []
    tab.close()


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_what_is_touched_has_24_pixels(tab, width):
    tab.set_viewport_size({"width": width, "height": 800})
    open_part(tab, "0.1")
    tab.click("#matrices summary")
    tab.click("#numbers [data-key='n-Q_h1-1-0']")
    unfold(tab, 3)
    small = tab.evaluate("""
        [...document.querySelectorAll('button, input, select, summary, [role=button]')]
            .map(e => [e.dataset.key ?? e.id, e.getBoundingClientRect()])
            .filter(([, box]) => box.width > 0 && (box.width < 24 || box.height < 24))
            .map(([name, { width, height }]) => `${name}: ${width} x ${height}`)
    """)
    assert small == []


@needs_browser
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_nothing_is_wider_than_the_screen(tab, width):
    tab.set_viewport_size({"width": width, "height": 800})
    for name in SHAPES:
        choose(tab, name)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_what_is_packed_is_the_run(pieces):
    each = pieces["two heads"]
    found, run = pack_run(each), each.run
    assert found["carried"] == [0, 1]
    assert found["seeds"] == found["opened"] == [0, 1, 2]
    skills = both_skills(run.spec.task, run.model(1), run.world(1))
    for name in ("elimination", "recall"):
        assert found["curves"][name][1][-1] == pytest.approx(float(skills[name]))
        assert found["outcomes"][name][1] == pytest.approx(float(skills[name]))
    assert build_page([found]) == build_page([pack_run(each)])  # same input, same bytes


def test_the_site_explores_a_condition_whose_seeds_lie_in_several_blocks(tmp_path):
    """As they do after a run with fewer seeds, or one that was cut."""
    spec = Spec(
        task=Permutation(n_symbols=3), model=ModelConfig(d_model=4, d_mlp=4), steps=3, batch=4
    )
    store = Store(tmp_path)
    study = dataclasses.replace(
        STUDIES["remember"], conditions=lambda _: {"x": Condition(spec, 4)}, explore=("x",)
    )
    assert featured_runs(study, store) == {}
    for seeds in (range(2), range(4)):
        load_or_train(store, spec, seeds)
    (found,) = describe_featured({"remember": featured_runs(study, store)})
    assert found.name == "remember: x (yours)"
    assert found.run.seeds == (0, 1, 2, 3)


def test_too_many_seeds_leave_the_page_small(pieces, monkeypatch):
    monkeypatch.setattr("mnemoscope.explorer.pack.MAX_FINAL_WEIGHTS", 10)
    assert pack_run(pieces["two heads"])["opened"] == [0, 1]


def test_skills_are_measured_once(pieces, tmp_path, monkeypatch):
    store, each = Store(tmp_path), pieces["two heads"]
    first = pack_run(each, store)
    monkeypatch.setattr(
        "mnemoscope.explorer.pack.over_seeds", lambda *_: pytest.fail("measured again")
    )
    assert pack_run(each, store) == first


def test_bad_choices_are_one_line(tmp_path, pieces):
    with pytest.raises(
        UserError, match=r"no stored run starts with 'abc'; there are: none are stored"
    ):
        visualize.explore(("abc",), store=tmp_path)
    with pytest.raises(
        UserError, match=r"--seeds takes whole numbers separated by commas, got '1;2'"
    ):
        visualize.explore(("abc",), seeds="1;2", store=tmp_path)
    each = pieces["two heads"]
    with pytest.raises(UserError, match=r"no seed 7 in run .*; allowed: 0, 1, 2"):
        pack_run(ExplorerRun(each.id, "x", "", each.run, (7,)))
    lost = dataclasses.replace(each.run, finite_steps=np.array([0, 30, 30]))
    with pytest.raises(
        UserError,
        match=r"seed 0 of run .* diverged: there are no numbers to show; "
        r"choose others with --seeds",
    ):
        pack_run(ExplorerRun(each.id, "x", "", lost, (0,)))
    assert describe_run(lost, "x").carried == (1, 2)
    assert get_adapter(each.run.spec.task).draw_label == "a random held-out sequence"
    with pytest.raises(UserError, match="register_adapter takes a class of tasks, got Permutation"):
        register_adapter(Permutation(), Adapter())
