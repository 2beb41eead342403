"""What the birth study claims, what it trains, and which judge settles which claim."""

from mnemoscope.studies.claims import ClaimTest, Study, load_claims
from mnemoscope.studies.library.birth import data, heads, order, written
from mnemoscope.studies.library.birth.conditions import (
    ALL,
    BIGRAM,
    GLOBAL,
    RANDOM,
    RARE,
    build_conditions,
)

CLAIMS = load_claims(__package__)

STUDY = Study(
    name="birth",
    package=__package__,
    title="How is an induction head born?",
    paper=(
        "Birth of a Transformer: A Memory Viewpoint (Bietti, Cabannes, Bouchacourt, Jegou, Bottou)"
    ),
    conditions=build_conditions,
    on_text=build_conditions,
    tests=(
        ClaimTest(CLAIMS["B1"], ("layers/*",), heads.one_or_two_layers),
        ClaimTest(CLAIMS["B2"], (ALL,), heads.two_heads),
        ClaimTest(CLAIMS["B3"], (ALL, RANDOM), heads.any_token),
        ClaimTest(CLAIMS["B4"], (), written.written_by_hand),
        ClaimTest(CLAIMS["B5"], (ALL,), order.order_of_memories),
        ClaimTest(CLAIMS["B6"], (ALL, "held/*"), order.freezing),
        ClaimTest(CLAIMS["B7"], (ALL,), order.early_positions),
        ClaimTest(CLAIMS["B8"], (ALL, "stages/*"), order.together_or_in_stages),
        ClaimTest(CLAIMS["B9"], (GLOBAL,), data.global_first),
        ClaimTest(CLAIMS["B10"], (ALL, f"{RARE}*", RANDOM), data.kinds_of_triggers),
        ClaimTest(CLAIMS["B11"], (ALL, BIGRAM), data.outputs_that_generalize),
        ClaimTest(CLAIMS["B12"], (GLOBAL,), data.late_competition),
        ClaimTest(CLAIMS["B13"], (), written.written_by_three_steps),
    ),
)
