"""What others measure the sidecar by: metrics in the format of Prometheus."""
