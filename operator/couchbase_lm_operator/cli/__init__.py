"""The command line ``lmcb``: what can be worked out without a running operator.

Exit codes: 0 done, 1 the outside world failed, 2 bad input, 3 the operator would refuse it.
"""
