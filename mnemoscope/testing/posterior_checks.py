"""Checks of what is exact about a task: its posterior, its list of examples, its loss floor.

Each is held against sequences that `sample` draws, by tests that an honest task fails once in 10^9
times (`sure_tests`), and exactly where the task lists all its examples. All of it is asked in the
worlds of several seeds (`task_draws.N_WORLDS`): one hidden world may hide a mistake.
"""

import math
from collections import defaultdict

import numpy as np

from mnemoscope.core.axes import Float
from mnemoscope.tasks import Example, Task
from mnemoscope.testing.check_result import NotApplicable, require
from mnemoscope.testing.sure_tests import best_bet, is_refuted, largest_mean
from mnemoscope.testing.task_draws import Read, TaskDraws, WorldDraws

TOLERANCE = 1e-4  # of sums and probabilities in float32
UNIFORM = 0.01  # how much of a uniform answer is mixed in, so that no loss is infinite


def check_sums(draws: TaskDraws) -> str:
    """Every row of the posterior at which something is asked is a distribution."""
    n_rows = 0
    for each in draws.in_worlds:
        read = each.drawn
        rows = read.p[read.asked]
        where = each.said
        require(np.isfinite(rows).all(), f"it is not finite where something is asked{where}")
        require((rows >= -TOLERANCE).all(), f"it is negative: {rows.min():.3g}{where}")
        sums = rows.sum(axis=-1)
        worst = sums[np.abs(sums - 1).argmax()]
        require(abs(worst - 1) <= TOLERANCE, f"a row sums to {worst:.6g}, not to 1{where}")
        n_rows += len(rows)
    return f"{n_rows:,} rows {draws.said_of_worlds}"


def check_possible(draws: TaskDraws) -> str:
    """What was drawn was never impossible."""
    for each in draws.in_worlds:
        read = each.drawn
        chances = np.take_along_axis(read.p, read.targets[..., None], axis=-1)[..., 0]
        wrong = np.argwhere(read.asked & (chances <= 0))
        if len(wrong):
            row, place = wrong[0]
            position = draws.task.loss_positions[place]
            tokens = read.tokens[row, : position + 1].tolist()
            require(
                False,
                f"it gives 0 to an answer that was drawn: {read.targets[row, place]} after "
                f"{tokens}{each.said}",
            )
    return draws.said_of_worlds


def check_agrees(draws: TaskDraws) -> str:
    """No other reader of the same sequences wins a bet against the posterior, in all worlds
    together."""
    by_world = [_bets(draws.task, each.drawn) for each in draws.in_worlds]
    ratios = {name: np.concatenate([bets[name] for bets in by_world]) for name in by_world[0]}
    best, log10_money = best_bet(ratios)
    n = len(next(iter(ratios.values())))
    require(
        not is_refuted(log10_money),
        f"what `sample` draws is 10^{log10_money:.0f} times as likely if the posterior is "
        f"{best} ({n:,} sequences {draws.said_of_worlds})",
    )
    return f"{n:,} sequences {draws.said_of_worlds}, {len(ratios)} bets against it"


def _bets(task: Task, read: Read) -> dict[str, Float[np.ndarray, "sequence"]]:
    """What each other reader multiplies its money by at each sequence of the second half.

    Those that count what follows have counted the first half. At each sequence the money is shared
    out evenly among the positions, so that nothing is said of how these hang together.
    """
    half = len(read.p) // 2
    p = read.p[half:]
    targets = read.targets[half:]
    asked = read.asked[half:]

    def money(q: np.ndarray) -> np.ndarray:
        """Of another reader's answers."""
        mine = np.take_along_axis(q, targets[..., None], axis=-1)[..., 0]
        theirs = np.take_along_axis(p, targets[..., None], axis=-1)[..., 0]
        return np.where(asked, mine / np.where(asked, theirs, 1), 1).mean(axis=1)

    def normalized(q: np.ndarray) -> np.ndarray:
        return q / np.where(asked, q.sum(axis=-1), 1)[..., None]

    safe = np.where(asked[..., None], p, 1 / p.shape[-1])
    bets = {
        "sharper": money(normalized(safe**2)),
        "flatter": money(normalized(safe**0.5)),
        "nearer to even": money((safe + 1 / p.shape[-1]) / 2),
    }
    for name, places in _places(task, read).items():
        counts: dict[object, np.ndarray] = defaultdict(lambda: np.zeros(p.shape[-1]))
        for row, place in np.argwhere(read.asked[:half]).tolist():
            counts[places[row][place]][read.targets[row, place]] += 1
        q = safe.copy()
        for row, place in np.argwhere(asked).tolist():
            seen = counts.get(places[half + row][place])
            if seen is not None:
                q[row, place] = (safe[row, place] + seen) / (1 + seen.sum())
        bets[f"nearer to what follows {name}"] = money(q)
    return bets


def _places(task: Task, read: Read) -> dict[str, list[list[object]]]:
    """By what a reader counts, what it sees at each position of each sequence."""
    positions = task.loss_positions
    rows = [row.tolist() for row in read.tokens]
    return {
        "each position": [list(positions) for _ in rows],
        "each token": [[row[t] for t in positions] for row in rows],
        "each beginning of a sequence": [
            [row[: t + 1].tobytes() for t in positions] for row in read.tokens
        ],
    }


def check_agrees_exactly(draws: TaskDraws) -> str:
    """The posterior is what counting gives, over all examples that there are."""
    if type(draws.task).posterior is Task.posterior:
        raise NotApplicable("it has no posterior")
    n_rows = sum(_compare_with_counts(each) for each in draws.in_worlds)
    return f"{n_rows:,} rows {draws.said_of_worlds}"


def _compare_with_counts(draws: WorldDraws) -> int:
    """Raise where the posterior of a world is not what counting gives; how many rows it has."""
    examples, probability = draws.listed
    read = draws.read(examples)
    exact: dict[bytes, np.ndarray] = defaultdict(lambda: np.zeros(read.p.shape[-1]))
    positions = draws.task.loss_positions
    places = np.argwhere(read.asked).tolist()
    for row, place in places:
        begin = read.tokens[row, : positions[place] + 1].tobytes()
        exact[begin][read.targets[row, place]] += probability[row]
    for row, place in places:
        tokens = read.tokens[row, : positions[place] + 1]
        counted = exact[tokens.tobytes()]
        error = np.abs(counted / counted.sum() - read.p[row, place]).max()
        require(
            error <= TOLERANCE,
            f"after {tokens.tolist()} it is {error:.3g} from what counting all examples gives"
            f"{draws.said}",
        )
    return len(places)


def check_listed(draws: TaskDraws) -> str:
    """The listed examples are those that are drawn, as often as their probabilities say."""
    ratios = [_bet_on_counts(each) for each in draws.in_worlds]
    _, log10_money = best_bet({"counted": np.concatenate(ratios)})
    require(
        not is_refuted(log10_money),
        f"what `sample` draws is 10^{log10_money:.0f} times as likely by its own counts",
    )
    n_listed = sum(len(each.listed[1]) for each in draws.in_worlds)
    n_drawn = sum(len(each.batch.tokens) for each in draws.in_worlds)
    return f"{n_listed:,} listed, {n_drawn:,} drawn {draws.said_of_worlds}"


def _bet_on_counts(draws: WorldDraws) -> Float[np.ndarray, "sequence"]:
    """What one who counts the first half of a world's sequences multiplies its money by at each of
    the second, against the listed probabilities."""
    examples, probability = draws.listed
    require(
        abs(probability.sum() - 1) <= TOLERANCE and (probability >= 0).all(),
        f"probabilities must not be negative and sum to 1, got {probability.sum():.6g}{draws.said}",
    )
    chances: dict[bytes, float] = defaultdict(float)
    for name, chance in zip(_names(examples), probability, strict=True):
        chances[name] += float(chance)
    names = _names(draws.batch)
    for row, name in enumerate(names):
        require(
            chances.get(name, 0) > 0,
            f"an example was drawn that is not listed: {draws.batch.tokens[row].tolist()}"
            f"{draws.said}",
        )
    half = len(names) // 2
    counts: dict[bytes, int] = defaultdict(int)
    for name in names[:half]:
        counts[name] += 1
    ratios = [(chances[name] + counts[name]) / (1 + half) / chances[name] for name in names[half:]]
    return np.array(ratios)


def _names(batch: Example) -> list[bytes]:
    """Each example of a batch as bytes."""
    tokens = np.asarray(batch.tokens, np.int64)
    targets = np.asarray(batch.targets, np.int64)
    asked = np.asarray(batch.weights) > 0
    # what is the answer where nothing is asked does not count
    targets = np.where(asked, targets, 0)
    rows = np.concatenate([tokens, targets, asked.astype(np.int64)], axis=1)
    return [row.tobytes() for row in rows]


# ---- the loss floor


def find_floor(draws: WorldDraws) -> float:
    """The loss floor of a world; one that there is not does not apply."""
    floor = draws.task.loss_floor(draws.world)
    if floor is None:
        raise NotApplicable("it has no loss floor")
    require(math.isfinite(floor) and floor >= 0, f"it must be finite and not negative, got {floor}")
    return abs(float(floor))  # 0 without a sign


def check_floor_of_posterior(draws: TaskDraws) -> str:
    """The loss floor is not above the loss of the posterior, in any world."""
    said = [_compare_floor(each) for each in draws.in_worlds]
    return f"{said[0]}; {draws.said_of_worlds}"


def _compare_floor(draws: WorldDraws) -> str:
    """Raise where a world's floor is above the posterior's loss; what both are."""
    floor = find_floor(draws)
    try:
        examples, probability = draws.listed
    except NotApplicable:
        _require_below(floor, draws.drawn, "the posterior")
        return f"{floor:.4g}, by {len(draws.drawn.p):,} sequences"
    if type(draws.task).posterior is Task.posterior:
        raise NotApplicable("it has no posterior")
    read = draws.read(examples)
    chances = np.take_along_axis(read.p, read.targets[..., None], axis=-1)[..., 0]
    losses = -np.log(np.where(read.asked, chances, 1))
    weighted = (read.weights * losses).sum(axis=1)
    loss = float((probability * weighted).sum() / (probability * read.weights.sum(axis=1)).sum())
    require(
        floor <= loss + TOLERANCE,
        f"the floor {floor:.6g} is above {loss:.6g}, the loss of the posterior itself{draws.said}",
    )
    return f"{floor:.4g}; the posterior's loss is {loss:.4g}"


def check_floor_of_training(draws: TaskDraws) -> str:
    """A model after a short training is not better than the loss floor."""
    floor = find_floor(draws.in_worlds[0])
    trained = draws.as_read(draws.trained_probabilities, draws.batch)
    loss = _require_below(floor, trained, "a trained model")
    return f"{floor:.4g}; a model after {draws.run.spec.steps} steps has {loss:.4g}"


def _require_below(floor: float, read: Read, who: str) -> float:
    """Raise if sequences show that a reader's loss is below the floor; its mean loss.

    Args:
        floor: the least mean loss.
        read: what the reader says.
        who: the reader.
    """
    n_answers = read.p.shape[-1]
    # another reader, of which the floor must hold as well
    p = (1 - UNIFORM) * read.p + UNIFORM / n_answers
    losses = -np.log(np.take_along_axis(p, read.targets[..., None], axis=-1)[..., 0])
    losses = np.where(read.asked, losses, 0)
    most = math.log(n_answers / UNIFORM)
    weights = read.weights / read.weights.sum(axis=1).max()
    above = (weights * (losses - floor)).sum(axis=1)
    loss = float((weights * losses).sum() / weights.sum())
    require(
        largest_mean(above, most + floor) >= 0,
        f"the floor {floor:.4g} is above {loss:.4g}, the loss of {who} on {len(above):,} sequences",
    )
    return loss
