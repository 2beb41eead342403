"""`python -m mnemoscope` is the command `mnemoscope`, also where the command is not on the path."""

from mnemoscope.cli.main import main

if __name__ == "__main__":
    main()
