"""What a Couchbase cluster holds: nodes, buckets, collections, users, documents. No sockets here."""
