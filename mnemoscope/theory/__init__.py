"""WHAT SHOULD HAPPEN: closed forms and constructions that need no run."""
