"""What the noise study claims, what it trains, and which judge settles which claim."""

from mnemoscope.studies.claims import ClaimTest, Study, load_claims
from mnemoscope.studies.library.noise import judges
from mnemoscope.studies.library.noise.conditions import build_conditions

CLAIMS = load_claims(__package__)

STUDY = Study(
    name="noise",
    package=__package__,
    title="Which part of a model learns the noise?",
    paper="Distributional Associations vs In-Context Reasoning (Chen, Bruna, Bietti)",
    conditions=build_conditions,
    tests=(
        ClaimTest(CLAIMS["N1"], ("noisy",), judges.early_and_late),
        ClaimTest(CLAIMS["N2"], ("noisy",), judges.truncation),
        ClaimTest(CLAIMS["N3"], (), judges.against_vocabulary),
    ),
)
