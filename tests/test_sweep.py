"""A sweep: every cell is what `fit` alone gives, however it was interrupted; what cannot be is
refused before anything trains; what is said before and shown after.
"""

import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.cli import main as cli
from mnemoscope.core.errors import UserError
from mnemoscope.store import Store, checkpoints
from mnemoscope.sweeps import engine, planned
from mnemoscope.sweeps.announce import describe_plan, seconds_in_words, size_in_words
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.coarse_first import axis_levels, coarse_first
from mnemoscope.sweeps.estimate import stored_bytes
from mnemoscope.sweeps.event import first_seen, parse_event
from mnemoscope.sweeps.from_python import choose_by
from mnemoscope.sweeps.grid import Grid
from mnemoscope.sweeps.heat_map import heat_map
from mnemoscope.sweeps.planned import fitting_rows, make_plan
from mnemoscope.sweeps.swept_axes import parse_over
from mnemoscope.training.run import Run

SPEC = ms.Spec(
    task=ms.Cycle(n_symbols=3, length=2),
    model=ms.ModelConfig(d_model=4, n_heads=1, d_mlp=0),
    steps=12,
    batch=2,
)
TOO_FAST = 1e38  # the loss is soon no number
OVER = {"model.d_model": [4, 2], "optimizer.lr": [0.003, 0.03, 0.3, TOO_FAST]}
SEEDS = 3
EVENT = "accuracy>=.99"


def same(one: Run, other: Run):
    """Bit for bit."""
    assert (one.spec, one.seeds) == (other.spec, other.seeds)
    np.testing.assert_array_equal(one.losses, other.losses)
    np.testing.assert_array_equal(one.finite_steps, other.finite_steps)
    np.testing.assert_array_equal(one.world_hashes, other.world_hashes)
    for part in ("snapshots", "metrics"):
        assert set(getattr(one, part)) == set(getattr(other, part))
        for name, value in getattr(one, part).items():
            np.testing.assert_array_equal(value, getattr(other, part)[name])


def same_cells(one: Grid, other: Grid):
    """Bit for bit, and in one order."""
    assert [cell.at for cell in one.cells] == [cell.at for cell in other.cells]
    for mine, theirs in zip(one.cells, other.cells, strict=True):
        assert mine.seeds == theirs.seeds
        for name in ("times", "reached", "diverged"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
        assert set(mine.metrics) == set(theirs.metrics)
        for name, values in mine.metrics.items():
            np.testing.assert_array_equal(values, theirs.metrics[name])


class StopError(Exception):
    """As if the power had gone."""


class Watch:
    """Hears what a sweep does; at a cell, or at a step, it has had enough."""

    def __init__(self, cells=None, steps=None):
        self.cells = cells
        self.steps = steps
        self.told = []
        self.seen = []

    def trained(self, done, total):
        self.told.append((done, total))
        if self.steps is not None and done >= self.steps:
            raise StopError

    def cell_done(self, cell):
        self.seen.append(cell)
        if len(self.seen) == self.cells:
            raise StopError


@pytest.fixture(scope="module")
def small_programs():
    """Two cells a program, so that each shape has two chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planned, "ROWS_ON_CPU", 2 * SEEDS)
        yield


@pytest.fixture(scope="module")
def plan(small_programs):
    return make_plan(SPEC, OVER, SEEDS, EVENT, evals=6)


@pytest.fixture(scope="module")
def in_memory(plan):
    """The sweep in one go, of which nothing is kept."""
    watch = Watch()
    swept = engine.run_plan(plan, None, watch)
    return swept, watch


@pytest.fixture(scope="module")
def interrupted(plan, tmp_path_factory):
    """The same in a store: cut off in the middle of a chunk, and while a chunk was being stored."""
    store = Store(tmp_path_factory.mktemp("swept"))
    trained = []
    real = engine.fit_side_by_side

    def fit(trainings, **options):
        trained.append([(spec.digest(), tuple(seeds)) for spec, seeds in trainings])
        return real(trainings, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "fit_side_by_side", fit)
        patch.setattr(checkpoints.StoreCheckpointer, "is_due", lambda self: True)
        with pytest.raises(StopError):
            engine.run_plan(plan, store, Watch(steps=2 * SEEDS * 6))  # of 12 steps of a chunk
        second = Watch(cells=1)
        with pytest.raises(StopError):
            engine.run_plan(plan, store, second)
        assert second.told[0][0] >= 2 * SEEDS * 6, "it goes on where it was"
        watch = Watch()
        swept = engine.run_plan(plan, store, watch)
    return swept, watch, trained, store


# ---- cells


def test_every_cell_is_what_fit_alone_gives(in_memory):
    swept, _ = in_memory
    assert swept.shape == (2, 4)
    assert len(swept.cells) == 8
    assert [cell.at for cell in swept.cells] == [
        {"model.d_model": d, "optimizer.lr": lr} for d in (4, 2) for lr in OVER["optimizer.lr"]
    ]
    for rate in (0.03, TOO_FAST):
        at = {"model.d_model": 2, "optimizer.lr": rate}
        spec = swept.spec(at)
        assert (spec.model.d_model, spec.optimizer.lr) == tuple(at.values())
        assert (spec.metrics, spec.n_evals) == ("answers", 6)
        alone = ms.fit(spec, SEEDS, progress=False)
        same(swept.run(at), alone)
        times, reached = first_seen(alone, parse_event(EVENT))
        cell = swept.cell(at)
        np.testing.assert_array_equal(cell.times, times)
        np.testing.assert_array_equal(cell.reached, reached)
        good = alone.finished
        accuracy = np.asarray(alone.accuracy())
        np.testing.assert_allclose(cell.metrics["accuracy"], accuracy, rtol=1e-6)
        np.testing.assert_array_equal(
            cell.metrics["training loss"][good], alone.losses[good, -1].astype(float)
        )
    assert {bool(x) for cell in swept.cells for x in cell.reached} == {True, False}


def test_a_diverged_seed_is_counted_and_reaches_nothing(in_memory):
    swept, _ = in_memory
    lost = swept.cell({"model.d_model": 4, "optimizer.lr": TOO_FAST})
    assert lost.diverged.all()
    assert len(lost.seeds) == SEEDS
    assert not lost.reached.any()
    assert (lost.times == SPEC.steps).all()
    assert np.isnan(lost.metrics["accuracy"]).all()
    everywhere = swept.share(lambda run: run.accuracy() >= 0, progress=False)
    assert [cell.reached.sum() for cell in everywhere.cells] == [3, 3, 3, 0, 3, 3, 3, 0]
    with pytest.raises(UserError, match="share needs yes or no of each seed"):
        swept.share(lambda run: run.accuracy(), progress=False)


def test_a_sweep_that_was_cut_off_goes_on_to_the_same(in_memory, interrupted):
    whole, _ = in_memory
    swept, watch, trained, store = interrupted
    same_cells(whole, swept)
    first = swept.cells[0].at
    same(whole.run(first), swept.run(first))
    # first call: a chunk up to its middle. Second: from there on, of which one cell was stored.
    # Third: the cell of that chunk that was not, and the three chunks behind it.
    assert [len(each) for each in trained] == [2, 2, 1, 2, 2, 2]
    assert trained[0] == trained[1]
    assert trained[2] == trained[1][1:]
    assert len({one for each in trained[1:] for one in each}) == 8, "nothing is trained twice"
    assert watch.told[-1] == (7 * SEEDS * 12, 7 * SEEDS * 12)
    assert not list(store.folder.rglob("*.part")), "nothing is left of what was under way"
    again = Watch()
    same_cells(engine.run_plan(swept_plan(swept), store, again), whole)
    assert again.told == []
    assert len(again.seen) == 8


def swept_plan(swept):
    """The plan of a sweep, made anew."""
    return make_plan(SPEC, swept.axes, SEEDS, EVENT, evals=6)


def test_refining_asks_for_some_seeds_and_finds_the_same_cells(interrupted):
    swept, _, _, store = interrupted
    plan = swept_plan(swept)
    asked = []
    choose = choose_by(plan, 15)

    def listening(grid):
        asked.append(choose(grid))
        return asked[-1]

    refined = engine.run_plan(plan, store, choose=listening)
    n_seeds = sum(len(cell.seeds) for cell in refined.cells)
    assert n_seeds == sum(len(want.seeds) for each in asked for want in each) <= 15
    assert not asked[-1], "until nothing more is asked for"
    for cell in refined.cells:
        whole = swept.cell(cell.at)
        np.testing.assert_array_equal(cell.times, whole.times[: len(cell.seeds)])
    with pytest.raises(UserError, match="a number of seeds from 1 up, got 0"):
        choose_by(plan, 0)


def test_another_place_may_train_and_a_store_is_needed_for_it(plan, interrupted):
    swept, _, _, store = interrupted
    asked = {}
    engine.run_plan(plan, store, train_elsewhere=lambda where, wanted: asked.update(wanted))
    assert len(asked) == 8
    assert asked["model.d_model=4, optimizer.lr=0.03"] == (
        swept.spec({"model.d_model": 4, "optimizer.lr": 0.03}),
        (0, 1, 2),
    )
    with pytest.raises(UserError, match="a cluster trains into a store"):
        engine.run_plan(plan, None, train_elsewhere=lambda where, wanted: None)


def test_seeds_with_gaps_are_blocks_of_one_cell(small_programs, tmp_path):
    plan = make_plan(SPEC, {"model.d_model": [2]}, [7, 3, 4], EVENT, evals=6)
    store = Store(tmp_path)
    swept = engine.run_plan(plan, store)
    assert [(row.first, row.last) for row in store.rows()] == [(3, 4), (7, 7)]
    (cell,) = swept.cells
    assert cell.seeds == (3, 4, 7)
    same(swept.run({"model.d_model": 2}), ms.fit(swept.spec(cell.at), [3, 4, 7], progress=False))


# ---- what is said before


def test_the_plan_is_said_and_its_disk_is_what_it_takes(plan, interrupted, tmp_path):
    _, _, _, store = interrupted
    new = "\n".join(describe_plan(plan, Store(tmp_path)))
    assert "2 model.d_model x 4 optimizer.lr = 8 cells of 3 seeds" in new
    assert "looked for at 7 steps of each training" in new
    assert "stored    0 of 8 cells" in new
    assert "programs  2 by shape" in new
    assert "(2 compilations, timed on each)" in new
    there = "\n".join(describe_plan(plan, store))
    assert "stored    8 of 8 cells" in there
    assert there.endswith("nothing is to be trained")
    sizes = [row.bytes + sum(len(str(value)) for value in row) for row in store.rows()]
    said = [stored_bytes(cell.spec, SEEDS) for cell in plan.cells.values()]
    assert sum(said) == pytest.approx(sum(sizes), rel=0.15)
    assert [seconds_in_words(x) for x in (0.2, 40.0, 600.0, 7200.0)] == [
        "1 s",
        "40 s",
        "10 min",
        "2.0 h",
    ]
    assert [size_in_words(x) for x in (4000, 12 * 10**5)] == ["4 kB", "1.2 MB"]


def test_chunks_hold_every_seed_once_and_fill_their_program(plan):
    chunks = list(plan.chunks((cell, plan.seeds) for cell in plan.cells.values()))
    assert [chunk.n_rows for chunk in chunks] == [6] * 4
    held = [
        (piece.cell.place, seed)
        for chunk in chunks
        for piece in chunk.pieces
        for seed in piece.seeds
    ]
    assert len(held) == len(set(held)) == 8 * SEEDS
    more = make_plan(SPEC, {"optimizer.lr": [0.1]}, [0, 1, 2, 3, 4, 5, 6, 9], EVENT)
    cut = list(more.chunks([(next(iter(more.cells.values())), more.seeds)]))
    assert [[piece.seeds for piece in chunk.pieces] for chunk in cut] == [
        [(0, 1, 2, 3, 4, 5)],
        [(6,), (9,)],
    ]
    assert [fitting_rows(n, 6) for n in (1, 2, 3, 4, 6)] == [2, 2, 3, 6, 6]


def test_the_coarsest_cells_come_first():
    assert axis_levels(1) == (0,)
    assert axis_levels(5) == (0, 2, 1, 2, 0)
    assert axis_levels(8) == (0, 2, 3, 1, 3, 2, 3, 0)
    order = coarse_first((5, 5))
    assert sorted(order) == [(i, j) for i in range(5) for j in range(5)]
    corners = {(i, j) for i in (0, 4) for j in (0, 4)}
    assert set(order[:4]) == corners
    assert set(order[4:9]) == {(i, j) for i in (0, 2, 4) for j in (0, 2, 4)} - corners
    assert order[9:] != sorted(order[9:]), "and each level in random order"


# ---- events


def test_the_time_is_the_first_evaluation_at_which_it_holds(in_memory):
    swept, _ = in_memory
    run = swept.run(swept.cells[0].at)
    accuracy = [
        [0.0, 0.0, 0.9, 0.5, 0.9, 1.0, 1.0],  # at 0, 2, 4, .. 12 steps
        [0.0] * 7,
        [np.nan, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    ]
    fields = {
        **vars(run),
        "metrics": {"accuracy": np.array(accuracy, np.float32)},
        "finite_steps": np.array([12, 12, 11]),
    }
    planted = Run(**fields)
    times, reached = first_seen(planted, parse_event("accuracy >= .9"))
    assert times.tolist() == [4, 12, 12], "9 of 10 is the float that is nearest to .9"
    assert reached.tolist() == [True, False, False], "the last one diverged"
    times, reached = first_seen(planted, parse_event("accuracy<.5"))
    assert times.tolist() == [0, 0, 12]
    assert str(parse_event("first loss<1e-3")) == "first loss < 0.001"


# ---- refused before anything trains


@pytest.mark.parametrize(
    ("over", "event", "said"),
    [
        ({}, EVENT, "a sweep needs an axis, such as model.d_model=8,16,32"),
        (
            {"model.d_modl": [4]},
            EVENT,
            "unknown axis 'model.d_modl' (did you mean 'model.d_model'?)",
        ),
        ({"model.d_model": []}, EVENT, "axis model.d_model is empty; allowed: one value or more"),
        ({"model.d_model": [4, 8, 4]}, EVENT, "axis model.d_model has 4 twice"),
        ({"model.d_model": "48"}, EVENT, "axis model.d_model needs a list of values, got '48'"),
        (
            {"model.n_heads": [1, 3]},
            EVENT,
            "1 of 2 cells cannot be trained; model.n_heads=3: ModelConfig: n_heads=3 does not "
            "divide d_model=4",
        ),
        (
            {"model": [ms.ModelConfig()], "model.d_model": [4]},
            EVENT,
            "axis model.d_model is a part of axis model",
        ),
        ({"optimizer.lr": range(1, 200_000)}, EVENT, "at most 100,000 cells, got 199,999"),
        ({"optimizer.warmup": [0], "model.act": ["rleu"]}, EVENT, "model.act=rleu: ModelConfig: "),
        ({"steps": [4]}, "accuracy=1", "an event is a metric, a comparison (>=, <=, >, <) and"),
        ({"steps": [4]}, "acuracy>1", "unknown metric in the event 'acuracy' (did you mean 'ac"),
        ({"steps": [4]}, "bigrams>1", "metrics='bigrams' reads the task 'bigrams', got 'cycle'"),
        ({"metrics": ["answers", ("answers",)]}, EVENT, "are one Spec; allowed: diff"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(over, event, said):
    with pytest.raises(UserError) as refused:
        make_plan(SPEC, over, 2, event)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_event_of_many_numbers_is_refused():
    bigrams = SPEC.model_copy(update={"task": ms.Facts()})
    with pytest.raises(UserError, match=r"'p\(a\)' is an array of shape"):
        make_plan(bigrams.model_copy(update={"metrics": "facts"}), {"steps": [4]}, 2, "p(a)>1")


def test_axes_of_a_command_line():
    assert parse_over("model.d_model=8, 16,32") == ("model.d_model", (8, 16, 32))
    assert parse_over("task.n_symbols=3..6") == ("task.n_symbols", (3, 4, 5, 6))
    assert parse_over("model.act=relu,gelu") == ("model.act", ("relu", "gelu"))
    assert parse_over("model.bias=true,false") == ("model.bias", (True, False))
    assert parse_over("d=8..256x6") == ("d", (8, 16, 32, 64, 128, 256))
    assert parse_over("optimizer.lr=1e-4..1e-2x3")[1] == ms.geomspace(1e-4, 1e-2, 3)
    assert ms.geomspace(1e-4, 1e-2, 3) == (1e-4, 1e-3, 1e-2)
    assert ms.geomspace(1e-4, 1e-2, 8)[1] == 0.0001931, "10^(-4 + 2/7), to four digits"
    for wrong in (
        "d_model",
        "d=",
        "d=1,,2",
        "d=6..3",
        "d=0.5..2",
        "d=a..b",
        "d=0..4x3",
        "d=1..4x1",
    ):
        with pytest.raises(UserError):
            parse_over(wrong)


# ---- what is shown


def grid_of(**axes):
    """A grid with a first cell."""
    at = {axis: values[0] for axis, values in axes.items()}
    reached = np.array([True, True, False, True])
    cell = Cell(at, (0, 1, 2, 3), np.array([1.0, 2, 9, 3]), reached, ~reached & False)
    return Grid({axis: tuple(values) for axis, values in axes.items()}, (cell,), "x > 1")


@pytest.mark.parametrize(
    "axes",
    [
        {"model.d_model": [4, 8], "optimizer.lr": list(ms.geomspace(1e-4, 1e-2, 7))},
        {"optimizer.lr": list(ms.geomspace(1e-4, 1e-2, 100))},
        {"task": ["a name that is much longer than a cell", "b"], "d": range(3), "lr": range(40)},
    ],
)
def test_a_map_fits_eighty_columns(axes):
    shown = heat_map(grid_of(**axes), 80)
    lines = shown.plain.splitlines()
    assert max(map(len, lines)) <= 80
    assert " 75 " in shown.plain
    n_cells = np.prod([len(values) for values in axes.values()])
    every = 6 if n_cells == 100 else 3 if n_cells == 240 else 1
    if every == 1:
        assert shown.plain.count("·") == n_cells - 1
    else:
        assert f"every {every} of" in shown.plain
    assert len(heat_map(grid_of(**axes), 80, height=4).plain.splitlines()) <= 5


MY_TASK = """
import jax, jax.numpy as jnp
import mnemoscope as ms
from typing import Literal

class Coin(ms.Task):
    "Say the token before."
    kind: Literal["coin"] = "coin"
    sides: int = 2

    @property
    def d_vocab(self): return self.sides

    @property
    def n_ctx(self): return 2

    def sample(self, world, *, key):
        tokens = jax.random.randint(key, (2,), 0, self.sides)
        return ms.Example(tokens, jnp.roll(tokens, 1), jnp.array([0.0, 1.0]))

BASE = ms.Spec(task=Coin(), model=ms.ModelConfig(d_model=4, n_heads=1, d_mlp=0), steps=4, batch=2)
"""
MY_SPEC = """
steps = 4
batch = 2
[task]
kind = "coin"
[model]
d_model = 4
n_heads = 1
d_mlp = 0
"""


def test_the_command_sweeps_a_task_of_ones_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "my_tasks.py").write_text(MY_TASK)
    (tmp_path / "spec.toml").write_text(MY_SPEC)

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["mnemoscope", "sweep", *arguments, "--store", "kept"])
        cli.main()
        return capsys.readouterr()

    over = ["--over", "optimizer.lr=1e-3,1e-2", "--seeds", "2", "--event", "accuracy>=0"]
    said = call("./my_tasks.py@BASE", *over, "--dry-run").out
    assert "2 optimizer.lr = 2 cells of 2 seeds" in said
    assert "reached" not in said
    shown = call("spec.toml", "--plugin", "./my_tasks.py", *over)
    assert "2 of 2: optimizer.lr=0.01: 2 of 2 reached, median step 0 [" in shown.err
    assert "100" in shown.out
    again = call("./my_tasks.py@BASE", *over, "--out", "found").out
    assert "nothing is to be trained" in again, "both name one Spec"
    assert (tmp_path / "found/map.svg").read_text().startswith("<svg")
    assert len((tmp_path / "found/seeds.csv").read_text().splitlines()) == 1 + 2 * 2
    for arguments, refused in [
        (
            ["my_tasks.py@Coins", *over],
            "unknown Spec or task in my_tasks.py 'Coins' (did you mean 'Co",
        ),
        (["none.toml", *over], "there is no Spec 'none.toml'"),
        (["my_tasks.py", *over], "'my_tasks.py' is no Spec"),
        (["spec.toml", *over, "--over", "optimizer.lr=1"], "--over names one axis twice"),
        (["spec.toml", "--budget", "3"], "--budget goes with --refine"),
        (["spec.toml", *over, "--out", "found"], "--out 'found' has files already"),
    ]:
        with pytest.raises(SystemExit) as ended:
            call(*arguments)
        assert ended.value.code == 2
        error = capsys.readouterr().err
        assert refused in error, error
        assert error.count("\n") == 1
