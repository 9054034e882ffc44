"""How the plugin and device backends get into engine images that know nothing of them.

``build`` fills the operator image with wheels for every interpreter an engine image may have, ``copy`` runs
in the first of two init containers and puts them on a shared volume, and ``install.py`` runs in the second one
with the engine image's own interpreter. Everything here needs only the standard library: neither image is ours
to install things into.
"""
