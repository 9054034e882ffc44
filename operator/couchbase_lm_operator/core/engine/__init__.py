"""What vLLM runs with: users' flags, open fields worked out, and what of them decides about cached bytes. Pure."""
