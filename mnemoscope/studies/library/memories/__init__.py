"""The memories study: what a matrix can store, and how it gets there.

What one gradient writes into it, and what an optimiser makes of it.
"""

from mnemoscope.studies.claims import Study, Test, load_claims
from mnemoscope.studies.library.memories import taught, written

CLAIMS = load_claims("memories")

STUDY = Study(
    name="memories",
    title="What can weights store?",
    source=(
        "Scaling Laws for Associative Memories (Cabannes, Dohmatob, Bietti) "
        "and the slides on memory in transformers"
    ),
    settings=lambda scale: {},
    tests=(
        Test(CLAIMS["M1"], (), written.outer_products),
        Test(CLAIMS["M2"], (), taught.capacity_grows),
        Test(CLAIMS["M3"], (), written.gradient_formula),
        Test(CLAIMS["M4"], (), written.one_step),
        Test(CLAIMS["M5"], (), written.sums_of_embeddings),
        Test(CLAIMS["M6"], (), written.exponents),
        Test(CLAIMS["M7"], (), taught.what_optimisers_store),
        Test(CLAIMS["M8"], (), taught.spikes),
    ),
)
