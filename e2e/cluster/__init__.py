"""A real single-node Kubernetes without Docker, for tests and the demo: see `paths` for where everything lives."""
