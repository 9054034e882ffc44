"""The pod template, part by part, from a plan. Pure."""
