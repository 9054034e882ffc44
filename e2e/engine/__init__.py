"""The environment the product's pods run in here: vLLM on CPU, LMCache, the Couchbase SDK, and a small real model."""
