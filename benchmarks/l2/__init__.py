"""How fast the L2 adapter is, next to LMCache's own ones and to bare sockets; see README.md."""
