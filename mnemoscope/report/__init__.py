"""HOW IT IS SHOWN: progress, ledger tables and files. Nothing here computes a statistic."""
