"""Behaviour of Couchbase Server that this product relies on, checked on the emulator and on real clusters alike."""
