"""The objects that belong to a resource: which are ours, which differ, what runs, what is pinned. Pure."""
