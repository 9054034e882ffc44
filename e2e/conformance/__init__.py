"""Behaviour of Couchbase Server that this product relies on, checked on the emulator and on real clusters alike.

    pytest e2e/conformance

runs it on emulators of one node, of three, and with TLS. With COUCHBASE_URL (`couchbase://host`, `couchbases://host`
or `http://host:8091`), COUCHBASE_USERNAME and COUCHBASE_PASSWORD of a full administrator, and COUCHBASE_CA_FILE when
the authority is not a public one, it runs on that cluster instead. There it makes buckets of 100 MiB per node and
users with random names, and removes them again; it needs 500 MiB of free data quota and an Enterprise cluster.
"""
