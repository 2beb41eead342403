"""The command line: one file for each group of commands, `main` for all of them."""
