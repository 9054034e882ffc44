"""LMCache device backend for the host CPU."""

BACKEND_NAME = "hostcpu"
