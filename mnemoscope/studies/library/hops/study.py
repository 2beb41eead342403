"""What the hops study claims, what it trains, and which judge settles which claim."""

from mnemoscope.studies.claims import ClaimTest, Study, load_claims
from mnemoscope.studies.library.hops import built, order, trained
from mnemoscope.studies.library.hops.conditions import build_conditions

CLAIMS = load_claims(__package__)

STUDY = Study(
    name="hops",
    package=__package__,
    title="Must a transformer be taught easy steps before hard ones?",
    paper=(
        "Learning Compositional Functions with Transformers from Easy-to-Hard Data "
        "(Wang and others)"
    ),
    conditions=build_conditions,
    tests=(
        ClaimTest(CLAIMS["H1"], (), built.hand_built),
        ClaimTest(CLAIMS["H2"], ("hard/*", "long/*", "mixture/k=4"), trained.hard_only),
        ClaimTest(CLAIMS["H3"], ("curriculum/pure", "curriculum/replay"), trained.by_curriculum),
        ClaimTest(CLAIMS["H4"], ("mixture/*", "hard/k=1"), trained.by_mixture),
        ClaimTest(CLAIMS["H5"], ("mixture/k=4", "curriculum/shallow"), order.layer_by_layer),
    ),
)
