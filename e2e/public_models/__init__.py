"""Public models and what the operator works out for them: the source of docs/models.md."""
