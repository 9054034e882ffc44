"""How fast the device backend moves KV cache blocks, next to LMCache's baseline and to the machine; see README.md."""
