"""Shells around the pure core: the API server, Couchbase and the model hub. They decide nothing."""
