"""Checks an installed LMCache device backend against LMCache's rules for them.

``python -m lmcache_hostcpu.check BACKEND`` works for every backend that an installed wheel declares in the entry-point
group ``lmcache.device_plugins``, not only for this one. It knows nothing of the backend but its name.
"""
