"""What the remember study claims, what it trains, and which judge settles which claim."""

from mnemoscope.studies.claims import ClaimTest, Study, load_claims
from mnemoscope.studies.library.remember import elimination, heads, recall
from mnemoscope.studies.library.remember.conditions import (
    ANY,
    PLAIN,
    SMALL,
    TWO,
    WIDE,
    build_conditions,
)

CLAIMS = load_claims(__package__)

STUDY = Study(
    name="remember",
    package=__package__,
    title="Can a tiny transformer learn to remember?",
    paper="Can a Tiny Transformer Learn to Remember? (permutation study)",
    conditions=build_conditions,
    explore=(TWO, WIDE, SMALL, PLAIN),
    tests=(
        ClaimTest(CLAIMS["R1"], (), elimination.loss_of_the_eliminator),
        ClaimTest(CLAIMS["R2"], (), elimination.counts),
        ClaimTest(CLAIMS["R3"], (PLAIN, f"{PLAIN}/*"), elimination.last_step),
        ClaimTest(CLAIMS["R4"], (PLAIN,), elimination.posterior_by_step),
        ClaimTest(CLAIMS["R5"], (PLAIN,), elimination.below_chance),
        ClaimTest(CLAIMS["R6"], (PLAIN,), elimination.the_trap),
        ClaimTest(CLAIMS["R7"], (PLAIN, SMALL, TWO), elimination.what_loss_shows),
        ClaimTest(CLAIMS["R8"], (SMALL, f"{SMALL}/*"), recall.small_model),
        ClaimTest(CLAIMS["R9"], (WIDE, f"{WIDE}/*"), recall.wide_model),
        ClaimTest(CLAIMS["R10"], (TWO, f"{TWO}/*"), recall.two_heads),
        ClaimTest(CLAIMS["R11"], (PLAIN,), elimination.even_attention),
        ClaimTest(CLAIMS["R12"], (TWO,), heads.roles_of_heads),
        ClaimTest(CLAIMS["R13"], (TWO,), heads.division_of_work),
        ClaimTest(CLAIMS["R14"], (TWO,), heads.attention_and_mlp),
        ClaimTest(CLAIMS["R15"], (TWO,), heads.local_pattern),
        ClaimTest(CLAIMS["R16"], ("repeat/d*h1", "repeat/d*h2"), recall.head_or_width),
        ClaimTest(CLAIMS["R17"], ("plain/v4", PLAIN, "plain/v6"), elimination.storing_or_ruling),
        ClaimTest(CLAIMS["R18"], ("plain/d*h1", "repeat/d*h2"), recall.dimensions),
        ClaimTest(CLAIMS["R19"], (TWO, ANY), recall.other_pairs),
    ),
)
