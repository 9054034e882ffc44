"""What a resource wants at Couchbase, whose things are, and the next step towards it. Pure."""
