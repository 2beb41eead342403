"""What the facts study claims, what it trains, and which judge settles which claim."""

from mnemoscope.studies.claims import ClaimTest, Study, load_claims
from mnemoscope.studies.library.facts import built, phases, trained
from mnemoscope.studies.library.facts.conditions import build_conditions

CLAIMS = load_claims(__package__)

STUDY = Study(
    name="facts",
    package=__package__,
    title="How are facts recalled, and why does a model make them up?",
    paper=(
        "Understanding Factual Recall in Transformers via Associative Memories "
        "(Nichani, Lee, Bietti)"
    ),
    conditions=build_conditions,
    tests=(
        ClaimTest(CLAIMS["F1"], (), built.hand_built),
        ClaimTest(CLAIMS["F2"], (), trained.stored_facts),
        ClaimTest(CLAIMS["F3"], (), trained.trade_off),
        ClaimTest(CLAIMS["F4"], ("linear",), phases.zero_loss),
        ClaimTest(CLAIMS["F5"], ("linear", "softmax/*"), phases.hallucination),
    ),
)
