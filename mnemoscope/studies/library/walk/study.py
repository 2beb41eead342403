"""What the walk study claims, what it trains, and which judge settles which claim."""

from mnemoscope.studies.claims import ClaimTest, Study, load_claims
from mnemoscope.studies.library.walk import judges
from mnemoscope.studies.library.walk.conditions import ABC, MLP, POST, PRE, build_conditions

CLAIMS = load_claims(__package__)

STUDY = Study(
    name="walk",
    package=__package__,
    title="A transformer as linear algebra, number by number",
    paper="A walk through a two-dimensional transformer on the pattern ABC",
    conditions=build_conditions,
    explore=(ABC,),
    tests=(
        ClaimTest(CLAIMS["W1"], (ABC, MLP, POST, PRE), judges.learns),
        ClaimTest(CLAIMS["W2"], (ABC,), judges.answers),
        ClaimTest(CLAIMS["W3"], (), judges.sums),
        ClaimTest(CLAIMS["W4"], (), judges.directions),
        ClaimTest(CLAIMS["W5"], (ABC,), judges.facts),
    ),
)
