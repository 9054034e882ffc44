"""Key-value side of the emulator: the memcached binary protocol as Couchbase Server speaks it."""
