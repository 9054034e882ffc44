"""Couchbase as the operator sees it: management over REST, proof of login over the data protocol."""
