"""The resource as users see it: schema, conditions and reasons. Pure."""
