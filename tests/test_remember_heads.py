"""The permutation study's heads and feed-forward layer: models written by hand that divide the
work, and planted numbers in every zone.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from planted import evidence_of, planted, silent
from remember_evidence import (
    FOUR,
    N,
    card,
    cards,
    column,
    conditions,
    entry,
    in_every_reading,
    like,
    measured_once,
    part_of,
    written_recaller,
)

from mnemoscope.probes.ablation import forced_patterns, knock_outs, list_cases
from mnemoscope.probes.skills import report_card
from mnemoscope.studies.library.remember.conditions import ANY, PLAIN_TWO, SMALL_TWO, TWO
from mnemoscope.studies.library.remember.heads import recall_by_halves, where_heads_look
from mnemoscope.studies.library.remember.recall import asked_again

# models written by hand --------------------------------------------------------------------------

LOCAL, GLOBAL, SILENT = 0, 1, 2  # rows of what was measured
PROBES = (report_card, where_heads_look, knock_outs, forced_patterns, asked_again)


@pytest.fixture(scope="module")
def two_heads():
    def written(spec):
        return [
            written_recaller(spec, local=True),
            written_recaller(spec, local=False),
            silent(spec),
        ]

    return measured_once(TWO, written, PROBES)


def written(two_heads, *counts):
    """What probes read of seeds that are such models, alike in every reading."""
    found = like(two_heads, *counts)
    return {(name, probe): x for name in in_every_reading(TWO) for probe, x in found.items()}


@pytest.mark.parametrize(
    ("claim", "of_the_local", "of_the_global"),
    [
        ("R10", "reproduced", "reproduced"),
        ("R12", "reproduced", "refuted"),
        ("R13", "reproduced", "reproduced"),
        ("R14", "reproduced", "reproduced"),
        ("R15", "reproduced", "refuted"),
        ("R25", "reproduced", "reproduced"),
    ],
)
def test_written_recallers_recall_by_divided_work(claim, of_the_local, of_the_global, two_heads):
    for kind, verdict in ((LOCAL, of_the_local), (GLOBAL, of_the_global)):
        assert entry(claim, written(two_heads, (kind, N))).verdict == verdict


@pytest.mark.parametrize("claim", ["R13", "R14", "R15"])
def test_only_those_who_can_are_asked_how(claim, two_heads):
    for able, verdict in ((35, "reproduced"), (20, "undecided"), (7, "undecided")):
        found = entry(claim, written(two_heads, (LOCAL, able), (SILENT, N - able)))
        assert found.verdict == verdict
        assert found.units == able
        assert found.value == 1


def test_the_written_recaller_knows_the_first_pair_alone(two_heads):
    first_only = like(two_heads, (LOCAL, N))[report_card]
    measured = cards(first_only, TWO) | {(ANY, report_card): first_only}
    found = entry("R19", measured)
    assert (found.verdict, found.value) == ("refuted", 0)
    assert part_of(found, "first").value == 1


# where heads look --------------------------------------------------------------------------------

# of each head: mass on outputs, unevenness, an output to itself, a query to the output before
AVERAGES, LOOKS_BACK = (0.9, 0.15, 0.0, 0.25), (0.6, 0.5, 0.9, 0.5)
ROLES = ("x_to_outputs", "unevenness", "y_to_self", "x_to_preceding_output")
PLACES = ("last_x_to_first_x", "last_x_to_first_output", "last_x_to_preceding_output")


def roles_of(*kinds):
    """What two heads look at: (head 0, head 1, how many seeds) for each kind of seed."""
    each = [(one, other) for one, other, many in kinds for _ in range(many)]
    table = np.array(each, float)  # seed head role
    found = {name: table[:, :, i] for i, name in enumerate(ROLES)} | dict.fromkeys(
        PLACES, np.zeros(table.shape[:2])
    )
    return {"new": found, "again": found}


def instead(kind, **changed):
    """A head like this one, but for some roles."""
    return tuple(changed.get(name, value) for name, value in zip(ROLES, kind, strict=True))


def looks(name, *kinds):
    """Where heads look, alike in every reading of a condition."""
    return {(each, where_heads_look): roles_of(*kinds) for each in in_every_reading(name)}


@pytest.mark.parametrize(
    ("kinds", "verdict"),
    [
        # whichever head it is
        ([(AVERAGES, LOOKS_BACK, 20), (LOOKS_BACK, AVERAGES, 20)], "reproduced"),
        ([(AVERAGES, LOOKS_BACK, 38), (AVERAGES, AVERAGES, 2)], "undecided"),
        ([(AVERAGES, LOOKS_BACK, 20), (AVERAGES, AVERAGES, 20)], "partly"),
        ([(AVERAGES, AVERAGES, 20), (LOOKS_BACK, LOOKS_BACK, 20)], "refuted"),
        ([(AVERAGES, instead(LOOKS_BACK, y_to_self=0.89), 40)], "refuted"),
        ([(AVERAGES, instead(LOOKS_BACK, x_to_preceding_output=0.49), 40)], "refuted"),
        ([(instead(AVERAGES, x_to_outputs=0.89), LOOKS_BACK, 40)], "refuted"),
        ([(instead(AVERAGES, unevenness=0.16), LOOKS_BACK, 40)], "refuted"),
        # one head that does both, beside an idle one, is not two
        ([((0.9, 0.15, 0.9, 0.5), (0, 1, 0, 0), 40)], "refuted"),
    ],
)
def test_roles_of_heads(kinds, verdict):
    """R12."""
    assert entry("R12", looks(TWO, *kinds) | cards(card(), TWO)).verdict == verdict


def test_where_heads_look_with_a_new_pair_settles_the_roles():
    seen = roles_of((AVERAGES, LOOKS_BACK, N)) | {
        "again": roles_of((AVERAGES, AVERAGES, N))["again"]
    }
    measured = {(name, where_heads_look): seen for name in in_every_reading(TWO)}
    assert entry("R12", measured | cards(card(), TWO)).verdict == "reproduced"


def test_a_reading_that_learns_nothing_has_no_say_in_the_roles():
    measured = looks(TWO, (AVERAGES, LOOKS_BACK, N)) | cards(card(), TWO)
    post = f"{TWO}/post"
    measured[post, where_heads_look] = roles_of((AVERAGES, AVERAGES, N))
    assert entry("R12", measured).verdict == "partly"
    measured[post, report_card] = card(recall=0.5)
    assert entry("R12", measured).verdict == "reproduced"


BOTH, NEITHER = (AVERAGES, LOOKS_BACK), (AVERAGES, AVERAGES)


@pytest.mark.parametrize(
    ("small", "two", "without_repeats", "verdict"),
    [
        (0, 40, 0, "reproduced"),
        (40, 40, 0, "partly"),
        (0, 0, 0, "partly"),  # it never appears
        (0, 40, 40, "partly"),
        (40, 0, 40, "refuted"),
        (20, 40, 0, "partly"),
        (0, 40, 20, "partly"),
        (0, 20, 0, "partly"),
        (2, 40, 0, "undecided"),
    ],
)
def test_specialization(small, two, without_repeats, verdict):
    """R28."""
    measured = cards(card(), TWO)
    for name, many in ((SMALL_TWO, small), (TWO, two), (PLAIN_TWO, without_repeats)):
        measured |= looks(name, (*BOTH, many), (*NEITHER, N - many))
    assert entry("R28", measured).verdict == verdict


# what is lost without a part ---------------------------------------------------------------------


def without(*kinds):
    """Both skills with head 0, head 1, all attention and the feed-forward layer at their mean,
    for each kind of seed.

    Each kind is ((elimination, ...), (recall, ...), how many seeds).
    Set to zero, everything would be lost.
    """
    names = list_cases(conditions("full")[TWO].spec.model)
    assert names == ["none", "L0H0", "L0H1", "L0 attention", "L0 mlp"]
    eliminate, recall = (
        np.array([(1.0, *kind[i]) for kind in kinds for _ in range(kind[2])]) for i in (0, 1)
    )
    lost = dict.fromkeys(("elimination", "recall"), np.zeros(eliminate.shape))
    return {"mean": {"elimination": eliminate, "recall": recall}, "zero": lost}


def of_masters(claim, scale="full", masters=N, **probed):
    """What a claim comes to when the first seeds of TWO master both skills by a hair
    and the rest fail one of them by as much.
    """
    found = card(recall=column(masters, 0.99, 0.98), accuracy=0.99)
    probes = {
        "knock_outs": knock_outs,
        "looks": where_heads_look,
        "forced": forced_patterns,
        "halves": recall_by_halves,
    }
    measured = cards(found, TWO, scale=scale)
    for name in in_every_reading(TWO, scale):
        measured |= {(name, probes[what]): value for what, value in probed.items()}
    return entry(claim, measured, scale)


DIVIDED = ((0.6, 0.9, 0, 0), (0.9, 0.6, 0, 0))
SWAPPED = ((0.9, 0.6, 0, 0), (0.6, 0.9, 0, 0))
ONE_FOR_BOTH = ((0.2, 1.0, 0, 0), (0.2, 1.0, 0, 0))


@pytest.mark.parametrize(
    ("kinds", "verdict"),
    [
        ([(*DIVIDED, 20), (*SWAPPED, 20)], "reproduced"),
        ([(*DIVIDED, 38), (*ONE_FOR_BOTH, 2)], "undecided"),
        ([(*DIVIDED, 20), (*ONE_FOR_BOTH, 20)], "partly"),
        ([(*ONE_FOR_BOTH, 40)], "refuted"),
        ([((1, 1, 0, 0), (1, 1, 0, 0), 40)], "refuted"),  # no head is needed
        ([((0.61, 0.9, 0, 0), DIVIDED[1], 40)], "refuted"),
        ([(DIVIDED[0], (0.9, 0.61, 0, 0), 40)], "refuted"),
        ([((0.6, 0.89, 0, 0), DIVIDED[1], 40)], "refuted"),
        ([(DIVIDED[0], (0.89, 0.6, 0, 0), 40)], "refuted"),
        # both for elimination, none for recall
        ([((0.6, 0.6, 0, 0), (0.9, 0.9, 0, 0), 40)], "refuted"),
    ],
)
def test_division_of_work(kinds, verdict):
    """R13."""
    for scale in ("quick", "full"):
        assert of_masters("R13", scale, knock_outs=without(*kinds)).verdict == verdict


@pytest.mark.parametrize(
    ("kinds", "verdict"),
    [
        ([((1, 1, 1, 1), (1, 1, 0.5, 0.5), 40)], "reproduced"),
        ([((1, 1, 1, 1), (1, 1, 0.5, 0.5), 20), ((1, 1, 1, 1), (1, 1, 0.5, 0.51), 20)], "partly"),
        ([((0, 0, 0, 0), (0, 0, 0.5, 0.51), 40)], "refuted"),  # it is enough to have attention
        ([((0, 0, 0, 0), (0, 0, 0.51, 0.5), 40)], "refuted"),
    ],
)
def test_attention_and_feed_forward(kinds, verdict):
    """R14."""
    for scale in ("quick", "full"):
        assert of_masters("R14", scale, knock_outs=without(*kinds)).verdict == verdict


# the head that recall needs most is the second one
HEAD_1 = without(((1, 1, 0, 0), (0.8, 0.2, 0, 0), N))


def forced(even, kept=1.0):
    """Recall with each head made to look evenly, and to look back only."""
    return {
        name: {"recall": np.tile(row, (N, 1))}
        for name, row in (("even", even), ("local", [kept, kept]))
    }


@pytest.mark.parametrize(
    ("preceding", "even", "full", "quick"),
    [
        ([0.0, 0.5], [1.0, 0.5], "reproduced", "undecided"),
        ([0.9, 0.49], [1.0, 0.5], "refuted", "refuted"),  # the other head looks there
        ([0.0, 0.5], [0.0, 0.51], "refuted", "refuted"),  # the other head needs its pattern
    ],
)
def test_the_local_pattern(preceding, even, full, quick):
    """R15."""
    heads = [instead(LOOKS_BACK, x_to_preceding_output=x) for x in preceding]
    probed = {"knock_outs": HEAD_1, "looks": roles_of((*heads, N)), "forced": forced(even)}
    assert of_masters("R15", "full", **probed).verdict == full
    assert of_masters("R15", "quick", **probed).verdict == quick


def test_the_local_pattern_of_some():
    back, away = (instead(LOOKS_BACK, x_to_preceding_output=x) for x in (0.5, 0.4))
    probed = {"knock_outs": HEAD_1, "forced": forced([1, 0])}
    for many, verdict in ((40, "reproduced"), (38, "undecided"), (20, "partly"), (0, "refuted")):
        seen = roles_of((back, back, many), (back, away, N - many))
        assert of_masters("R15", looks=seen, **probed).verdict == verdict
    # where x1 is asked again counts, not where a new pair is
    seen = roles_of((back, back, N)) | {"new": roles_of((away, away, N))["new"]}
    assert of_masters("R15", looks=seen, **probed).verdict == "reproduced"


def test_who_cannot_recall_is_not_asked_where_he_looks():
    """Thirty-five masters settle it whatever the others do."""
    mixed = without((*DIVIDED, 35), (*ONE_FOR_BOTH, 5))
    found = of_masters("R13", masters=35, knock_outs=mixed)
    assert (found.verdict, found.units, found.value) == ("reproduced", 35, 1)
    assert of_masters("R13", masters=40, knock_outs=mixed).verdict == "undecided"
    assert of_masters("R13", masters=7, knock_outs=mixed).verdict == "undecided"
    assert of_masters("R13", masters=0, knock_outs=mixed).verdict == "undecided"


# what the feed-forward layer goes by -------------------------------------------------------------


def halves(embedding, attention):
    """How often y1 is the answer with one half put in."""
    shares = {"embedding": embedding, "attention": attention}
    return {what: np.array(np.broadcast_to(x, N), float) for what, x in shares.items()}


@pytest.mark.parametrize(
    ("embedding", "attention", "verdict"),
    [
        (0.5, 0.5, "reproduced"),
        (0.5, 0.51, "partly"),
        (0.49, 0.5, "partly"),
        (0.49, 0.51, "refuted"),
        (np.where(np.arange(N) < 20, 0.5, 0.49), 0.5, "partly"),
        (0.5, np.where(np.arange(N) < 20, 0.5, 0.51), "partly"),
        (np.where(np.arange(N) < 38, 0.5, 0.49), 0.5, "undecided"),
    ],
)
def test_recognition(embedding, attention, verdict):
    """R29."""
    for scale in ("quick", "full"):
        found = of_masters("R29", scale, halves=halves(embedding, attention))
        assert found.verdict == verdict
    # who does not master both is not asked
    found = of_masters("R29", masters=35, halves=halves(embedding, attention))
    assert found.units == 35


def repeats_itself(spec):
    """Says the token that it reads, whatever came before."""
    params = silent(spec)
    tokens = np.arange(1, spec.task.d_vocab)
    params["embed.W_E"][tokens, tokens] = 1
    params["unembed.W_U"][tokens, tokens] = 9
    return params


def says_the_first_answer(spec):
    """Looks at the second position alone, and says what stands there, if it reads the first token
    or not.
    """
    params = silent(spec)
    tokens = np.arange(1, spec.task.d_vocab)
    mark, said = 10, 16
    params["embed.W_E"][tokens, tokens] = 1
    params["pos_embed.W_pos"][1, mark] = 1
    params["blocks.0.attn.b_Q"][0, 0] = 400.0
    params["blocks.0.attn.W_K"][0, mark, 0] = 1
    params["blocks.0.attn.W_V"][0, tokens, tokens] = 1
    params["blocks.0.attn.W_O"][0, tokens, said + tokens] = 1
    params["unembed.W_U"][said + tokens, tokens] = 9
    return params


def test_one_half_at_a_time_is_put_in():
    """The first model goes by the embedding alone: it says x1, which is y1 for mappings that leave
    x1 where it is. The second goes by what attention brings, whichever x is asked.
    """
    spec = conditions("full")[TWO].spec.model_copy(update={"task": FOUR})
    models = [repeats_itself(spec), says_the_first_answer(spec)]
    run = planted(spec, 2, params=models)
    found = evidence_of({TWO: run}).measure(TWO, recall_by_halves)
    fixed = [
        (np.asarray(world) == np.arange(4)).mean() for world in jnp.asarray(run.worlds().held_out)
    ]
    np.testing.assert_allclose(found["embedding"], [fixed[0], 1], atol=1e-6)
    # the new x that it reads is y1 for one in three of the others
    np.testing.assert_allclose(found["attention"], [(1 - fixed[0]) / 3, 1], atol=1e-6)
