"""The walk study: what it claims, and what it trains."""

from mnemoscope.studies.library.walk.conditions import ABC, build_conditions
from mnemoscope.studies.study import Study

STUDY = Study(
    title="A transformer as linear algebra, number by number",
    paper="A walk through a two-dimensional transformer on the pattern ABC",
    conditions=build_conditions,
    explore=(ABC,),
)
