"""What the memories study claims, what it trains, and which judge settles which claim."""

from mnemoscope.studies.claims import ClaimTest, Study, load_claims
from mnemoscope.studies.library.memories import taught, written

CLAIMS = load_claims(__package__)

STUDY = Study(
    name="memories",
    package=__package__,
    title="What can weights store?",
    paper=(
        "Scaling Laws for Associative Memories (Cabannes, Dohmatob, Bietti) "
        "and the slides on memory in transformers"
    ),
    conditions=lambda scale: {},
    tests=(
        ClaimTest(CLAIMS["M1"], (), written.outer_products),
        ClaimTest(CLAIMS["M2"], (), taught.capacity_grows),
        ClaimTest(CLAIMS["M3"], (), written.gradient_formula),
        ClaimTest(CLAIMS["M4"], (), written.one_step),
        ClaimTest(CLAIMS["M5"], (), written.sums_of_embeddings),
        ClaimTest(CLAIMS["M6"], (), written.exponents),
        ClaimTest(CLAIMS["M7"], (), taught.what_optimizers_store),
        ClaimTest(CLAIMS["M8"], (), taught.spikes),
    ),
)
