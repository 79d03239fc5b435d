"""The admin surface: health, state and (later) changes over HTTP. Only importer of FastAPI."""
