"""A model as its KV cache sees it: what its config.json says of layers, types, lengths and work per token. Pure."""
