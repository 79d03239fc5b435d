"""How the configuration is read and checked; sidecar.settings is what others import."""
