"""The permutation study: does a tiny transformer remember what it was shown?

Or does it eliminate what is left?
"""

from mnemoscope.studies.claims import Study, Test, load_claims
from mnemoscope.studies.library.remember import elimination, heads, recall
from mnemoscope.studies.library.remember.conditions import ANY, PLAIN, SMALL, TWO, WIDE, settings

CLAIMS = load_claims("remember")

STUDY = Study(
    name="remember",
    title="Can a tiny transformer learn to remember?",
    source="Can a Tiny Transformer Learn to Remember? (permutation study)",
    settings=settings,
    explore=(TWO, WIDE, SMALL, PLAIN),
    tests=(
        Test(CLAIMS["R1"], (), elimination.loss_of_the_eliminator),
        Test(CLAIMS["R2"], (), elimination.counts),
        Test(CLAIMS["R3"], (PLAIN, f"{PLAIN}/*"), elimination.last_step),
        Test(CLAIMS["R4"], (PLAIN,), elimination.posterior_by_step),
        Test(CLAIMS["R5"], (PLAIN,), elimination.below_chance),
        Test(CLAIMS["R6"], (PLAIN,), elimination.the_trap),
        Test(CLAIMS["R7"], (PLAIN, SMALL, TWO), elimination.what_loss_shows),
        Test(CLAIMS["R8"], (SMALL, f"{SMALL}/*"), recall.small_model),
        Test(CLAIMS["R9"], (WIDE, f"{WIDE}/*"), recall.wide_model),
        Test(CLAIMS["R10"], (TWO, f"{TWO}/*"), recall.two_heads),
        Test(CLAIMS["R11"], (PLAIN,), elimination.even_attention),
        Test(CLAIMS["R12"], (TWO,), heads.roles_of_heads),
        Test(CLAIMS["R13"], (TWO,), heads.division_of_work),
        Test(CLAIMS["R14"], (TWO,), heads.attention_and_mlp),
        Test(CLAIMS["R15"], (TWO,), heads.local_pattern),
        Test(CLAIMS["R16"], ("repeat/d*h1", "repeat/d*h2"), recall.head_or_width),
        Test(CLAIMS["R17"], ("plain/v4", PLAIN, "plain/v6"), elimination.storing_or_ruling),
        Test(CLAIMS["R18"], ("plain/d*h1", "repeat/d*h2"), recall.dimensions),
        Test(CLAIMS["R19"], (TWO, ANY), recall.other_pairs),
    ),
)
