"""The noise study: what distracts a model, and which part of it is distracted.

And what truncation does about it.
"""

from mnemoscope.studies.claims import ClaimTest, Study, load_claims
from mnemoscope.studies.library.noise import judges
from mnemoscope.studies.library.noise.conditions import build_conditions

CLAIMS = load_claims("noise")

STUDY = Study(
    name="noise",
    title="Which part of a model learns the noise?",
    paper="Distributional Associations vs In-Context Reasoning (Chen, Bruna, Bietti)",
    conditions=build_conditions,
    tests=(
        ClaimTest(CLAIMS["N1"], ("noisy",), judges.early_and_late),
        ClaimTest(CLAIMS["N2"], ("noisy",), judges.truncation),
        ClaimTest(CLAIMS["N3"], (), judges.against_vocabulary),
    ),
)
