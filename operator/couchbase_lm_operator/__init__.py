"""Kubernetes operator that serves vLLM with a KV cache shared through Couchbase.

One flow, one direction: gather -> check -> plan -> render -> apply and provision -> status.
``core`` and ``api`` are pure; ``io`` talks to the world and decides nothing.
"""
