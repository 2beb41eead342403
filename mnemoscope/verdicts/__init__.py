"""How verdicts arise: criteria as data, one rule, and ledgers that can be derived again.

Nothing here needs JAX: whoever has a ledger and its evidence can check every verdict.

    claim + record -> estimates -> states -> verdict, interval, sentence -> entry of a ledger
"""
