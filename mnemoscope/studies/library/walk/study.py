"""The walk study: what it claims, and what it trains."""

from mnemoscope.studies.library.walk.conditions import ABC, build_conditions
from mnemoscope.studies.study import Study, load_tests

STUDY = Study(
    name="walk",
    package=__package__,
    title="A transformer as linear algebra, number by number",
    paper="A walk through a two-dimensional transformer on the pattern ABC",
    conditions=build_conditions,
    explore=(ABC,),
    tests=load_tests(__package__),
)
