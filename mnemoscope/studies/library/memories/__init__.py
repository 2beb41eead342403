"""The memories study: what a matrix can store, and how it gets there.

What one gradient writes into it, and what an optimizer makes of it.
"""

from mnemoscope.studies.claims import ClaimTest, Study, load_claims
from mnemoscope.studies.library.memories import taught, written

CLAIMS = load_claims("memories")

STUDY = Study(
    name="memories",
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
