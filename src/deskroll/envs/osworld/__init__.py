"""Tasks on a desktop, in OSWorld's format: set-up steps, action spaces, observations, evaluators."""
