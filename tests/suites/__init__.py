"""The bundled suites."""
