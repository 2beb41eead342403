"""The studies that come with Mnemoscope, a folder each."""
