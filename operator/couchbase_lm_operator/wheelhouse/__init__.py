"""How the plugin gets into engine images that know nothing of it.

``build`` fills the operator image with wheels for every interpreter an engine image may have, ``copy`` runs
in the first init container and puts them on a shared volume, and ``install.py`` runs in the second one with
the engine image's own interpreter. Everything here needs only the standard library: neither image is ours
to install things into.
"""
