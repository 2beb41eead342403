"""The models that travel with the studies: whole, of this code's conditions, small, and seen in a
browser.
"""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from explorer_page import launch_browser, move_to, needs_browser, shown, summary, watched_tab

from mnemoscope.core.errors import UserError
from mnemoscope.explorer import build_page
from mnemoscope.explorer.choose_snapshots import N_SNAPSHOTS
from mnemoscope.explorer.shipped import (
    INDEX,
    folder_of,
    list_shipped,
    pack_shipped,
    read_measured,
    shipped_runs,
)
from mnemoscope.explorer.train_shown import find_models, ship
from mnemoscope.studies.discover import STUDIES, Library
from mnemoscope.studies.folder import judging_files
from mnemoscope.tasks import HopWorld

MOST_BYTES = 8_000_000  # of the page

WITH_MODELS = {name: study for name, study in STUDIES.items() if find_models(study)[0]}


# ---- the files


@pytest.mark.parametrize("name", WITH_MODELS)
def test_what_travels_is_what_the_study_names(name):
    """Other conditions, or another number of seeds, want to be trained anew."""
    study = WITH_MODELS[name]
    shipped = {model.name: model for model in list_shipped(study)}
    named, n_carried = find_models(study)
    assert list(shipped) == list(named)
    for model_name, condition in named.items():
        model = shipped[model_name]
        steps = model.spec.snapshot_steps()
        kept = {"snapshots": 2, "snapshot_at": steps[1:-1]}
        assert model.spec == condition.spec.model_copy(update=kept)
        assert model.seeds == tuple(condition.seed_range)
        assert len(model.carried) == n_carried
        assert len(steps) == N_SNAPSHOTS >= 30
        assert model.command.endswith(f"train_shown {name}")
        assert model.trained_by.device
        assert read_measured(study, model)["spec"] == model.spec.model_dump(mode="json")
    files = {file.name for file in folder_of(study).iterdir()}
    assert files == {INDEX, *(model.file for model in shipped.values())}
    # how a study is shown is no part of what its findings rest on
    assert not {"explorer.py", "tour.toml"} & {
        file.name for file in judging_files(folder_of(study).parent)
    }
    assert not any(file.parent == folder_of(study) for file in judging_files(files_of(study)))


def files_of(study):
    return folder_of(study).parent


def test_every_study_whose_models_the_page_can_run_has_some():
    """`facts` answers with tokens of its own, and a language model does not fit a page."""
    trains = {name for name, study in STUDIES.items() if study.conditions("quick")}
    assert trains - set(WITH_MODELS) == {"facts"}


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A study in a folder of somebody's own, with the models of one of ours."""
    home = tmp_path / "elsewhere" / "copied"
    home.mkdir(parents=True)
    for file in (home.parent / "__init__.py", home / "__init__.py", home / "claims.toml"):
        file.touch()
    (home / "study.py").write_text(
        "from mnemoscope.studies.study import Study\n"
        "STUDY = Study(title='t', conditions=lambda scale: {})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    shutil.copytree(folder_of(STUDIES["walk"]), home / "explorer_models")
    return Library("elsewhere")["copied"]


def test_a_file_that_was_changed_is_not_shown(copied):
    (model,) = list_shipped(copied)
    (run,) = pack_shipped(copied)
    assert run["name"] == f"copied: {model.name}"
    file = folder_of(copied) / model.file
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(UserError, match=rf"copied: abc: {model.file} is damaged, .* install again"):
        pack_shipped(copied)
    file.unlink()
    with pytest.raises(UserError, match=r"cannot be read \(No such file"):
        pack_shipped(copied)
    (folder_of(copied) / INDEX).write_text('{"models": [{}]}')
    with pytest.raises(UserError, match=r"ShippedModel|Field required"):
        pack_shipped(copied)


def test_anybodys_study_ships_its_models(copied):
    """Trained, written, read back: as ours are."""
    home = files_of(copied)
    with pytest.raises(UserError, match=r"'copied' names no models for the explorer; needed: expl"):
        ship(copied)
    (home / "explorer.py").write_text(
        "import mnemoscope as ms\n"
        "from mnemoscope.studies.study import Condition\n"
        "def models():\n"
        "    model = ms.ModelConfig(d_model=2, n_heads=1, d_mlp=0)\n"
        "    spec = ms.Spec(task=ms.Cycle(), model=model, steps=40, batch=4)\n"
        "    return {'A/b c': Condition(spec, 3)}\n"
    )
    (model,) = ship(copied, progress=False)
    assert {file.name for file in folder_of(copied).iterdir()} == {INDEX, "a-b-c.json.gz"}
    (packed,) = pack_shipped(copied)
    assert packed["id"] == model.spec.digest()
    assert packed["name"] == "copied: A/b c"
    assert "It came with the study: Mnemoscope" in packed["about"]
    run = shipped_runs(copied)["A/b c"]
    assert run.seeds == model.carried
    expected = run.model(run.seeds[0])(np.array([0, 1, 2]))
    answer = np.exp(expected) / np.exp(expected).sum(axis=-1, keepdims=True)
    golden = next(
        each
        for each in packed["golden"]
        if (each["seed"], each["at"], each["tokens"], each["off"])
        == (run.seeds[0], len(packed["steps"]) - 1, [0, 1, 2], {})
    )
    np.testing.assert_allclose(golden["probabilities"], answer, atol=2e-6)


# ---- in the browser


@pytest.fixture(scope="module")
def packed():
    return {run["name"]: run for study in WITH_MODELS.values() for run in pack_shipped(study)}


@pytest.fixture(scope="module")
def page(packed, tmp_path_factory):
    path = tmp_path_factory.mktemp("shipped") / "explorer.html"
    path.write_text(build_page(list(packed.values())))
    return path


@pytest.fixture(scope="module")
def browser():
    yield from launch_browser()


@pytest.fixture(scope="module")
def tab(browser, page):
    """One page for all of them; an error in the console or a request fails the last one."""
    with watched_tab(browser, page.as_uri()) as tab:
        yield tab


def test_the_page_is_small(page):
    assert page.stat().st_size <= MOST_BYTES


@needs_browser
def test_it_agrees_with_python_on_every_model(tab, packed):
    tab.wait_for_selector(".badge.good", timeout=120_000)
    worst = float(tab.locator(".badge").get_attribute("data-worst"))
    assert 0 < worst < 1e-4
    options = tab.locator("#run option").all_text_contents()
    assert options == list(packed)


def pick(tab, name):
    tab.select_option("#run", label=name)


@needs_browser
def test_an_induction_head_is_seen(tab, packed):
    """t h e x w h e x t h e: the first head looks one place back, the second finds the x."""
    name = "birth: induction head"
    pick(tab, name)
    tab.click("#presets button:has-text('the x')")
    text = "thexwhexthe"
    assert tab.input_value("#typed") == text
    for seed in packed[name]["opened"]:
        tab.select_option("#seed", str(seed))
        numbers = shown(tab)
        (previous,), (induction,) = numbers["attention"]
        diagonal = [previous[at][at - 1] for at in range(1, len(text))]
        assert np.mean(diagonal) > 0.5, f"seed {seed}"
        places = [at for at, token in enumerate(text) if token == "x"]
        assert sum(induction[-1][at] for at in places) > 0.5, f"seed {seed}"
        assert summary(tab).startswith(f"After {text} the model says x ("), f"seed {seed}"
    assert tab.text_content("#readings") == "Here the context says x."
    # it is the letter that stands there that is copied
    tab.click("#presets button:has-text('another letter')")
    assert " the model says k (" in summary(tab)
    # without the first head there is nothing to find
    tab.click("#presets button:has-text('the x')")
    tab.click("[data-key='node-0.0']")
    assert ", now x" not in summary(tab)
    tab.click("#reset")


def task_of(name):
    """The task of a model that travels."""
    study, _, model = name.partition(": ")
    return next(each.spec.task for each in list_shipped(STUDIES[study]) if each.name == model)


@needs_browser
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("birth: induction head", "thexwhexthe"),
        ("noise: noisy", "an␣knew␣!ing␣"),
        ("noise: noisy", "an␣!new␣!ing␣"),
    ],
)
def test_the_reader_of_a_text_is_the_exact_one(tab, name, text):
    task = task_of(name)
    pick(tab, name)
    tab.fill("#typed", text)
    tokens = [task.token_names.index(character) for character in text]
    posterior = task.posterior(np.array(tokens))
    exact = shown(tab)["exact"]
    triggers = [at for at, token in enumerate(tokens) if token in task.fixed_triggers]
    seen = [at for at in triggers if tokens[at] in tokens[:at]]
    assert [each["position"] for each in exact] == seen
    for each in exact:
        found = each["a reader of the whole context"]
        np.testing.assert_allclose(found, posterior[each["position"]], atol=1e-6)


@needs_browser
def test_hops_are_the_exact_ones(tab, packed):
    name = "hops: mixture/k=2"
    task = task_of(name)
    pick(tab, name)
    tab.fill("#typed", "021210")
    context = np.array([0, 2, 1, 2, 1, 0])
    (seed,) = packed[name]["carried"]
    hidden = packed[name]["worlds"][packed[name]["opened"].index(seed)]["hidden"]
    world = HopWorld(jnp.array(hidden), jnp.ones(task.levels))
    expected = task.answers(world, jnp.array(context.reshape(task.k, task.n)))
    numbers = shown(tab)
    for each in numbers["exact"]:
        assert np.argmax(each["2 hops"]) == expected[-1][each["position"]]
        assert max(each["2 hops"]) == 1
    assert len(numbers["exact"]) == task.n_ctx
    one, two = (int(level[-1]) for level in expected)
    assert tab.text_content("#readings") == f"Here 2 hops says {two}, 1 hop says {one}."


@needs_browser
def test_scrubbing_shows_recall_setting_in(tab, packed):
    """Between elimination and recall there are answers that are neither's at its end."""
    run = packed["remember: repeat/d32h2"]
    pick(tab, run["name"])
    tab.click("#presets button:has-text('the paper\\'s trap')")
    seed = run["carried"][0]
    tab.select_option("#seed", str(seed))
    recall = run["curves"]["recall"][0]
    elimination = run["curves"]["elimination"][0]
    begin = next(at for at, value in enumerate(elimination) if value >= 0.9)
    end = next(at for at, value in enumerate(recall) if value >= 0.99)
    said = []
    for at in range(begin, end + 1):
        move_to(tab, at)
        said.append(summary(tab).split(" says ")[1])
    assert said[0].startswith("1 ("), "elimination"
    assert said[-1].startswith("4 ("), "recall"
    assert len(set(said)) >= 3
    assert sum(0.1 < value < 0.9 for value in recall) >= 6


@needs_browser
def test_the_tour_of_the_induction_head_is_walked_to_its_end(tab, packed):
    pick(tab, "birth: induction head")
    n_steps = len(packed["birth: induction head"]["tour"]["steps"])
    assert 6 <= n_steps <= 8
    tab.click("#tour-start button")
    said = []
    for step in range(1, n_steps + 1):
        assert tab.text_content("#tour-title").startswith(f"{step} of {n_steps}. ")
        said.append(tab.text_content("#tour-text"))
        if step < n_steps:
            tab.keyboard.press("Enter")
    assert tab.locator("[data-key=tour-next]").count() == 0
    assert not any("{" in text or "undefined" in text for text in said)
    assert "the model says x" not in said[0]
    assert said[4].count("says: x (") == 1
    tab.click("[data-key=tour-leave]")


@needs_browser
@pytest.mark.parametrize("name", WITH_MODELS)
def test_every_model_says_what_is_asked_and_offers_prompts(tab, packed, name):
    runs = [run for run in packed.values() if run["name"].startswith(f"{name}: ")]
    assert any(run["tour"] for run in runs)
    for run in runs:
        pick(tab, run["name"])
        assert len(tab.text_content("#words")) > 40
        assert "undefined" not in tab.text_content("body")
        presets = tab.locator("#presets button")
        for at in range(presets.count()):
            presets.nth(at).click()
            # one prompt that no training showed says so, and is not the first
            warning = tab.text_content("#warning")
            assert warning == "" or (at and warning.startswith("This leaves")), run["name"]
            assert "undefined" not in tab.text_content("#answer")
