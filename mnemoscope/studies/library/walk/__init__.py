"""The walk study: a model small enough to be followed number by number.

And the arithmetic that the paper prints about it.
"""

from mnemoscope.studies.claims import ClaimTest, Study, load_claims
from mnemoscope.studies.library.walk import judges
from mnemoscope.studies.library.walk.conditions import ABC, MLP, POST, PRE, build_conditions

CLAIMS = load_claims("walk")

STUDY = Study(
    name="walk",
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
