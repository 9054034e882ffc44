"""Decisions: from what was gathered to a plan, manifests, provisioning steps and a status. Pure."""
