"""From a model and an engine to groups, chunks, documents and memory, and whether loading pays. Pure."""
