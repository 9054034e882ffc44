"""Management REST interface of the emulator, one module per concern."""
