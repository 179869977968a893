"""Training as a service: each tenant trains adapters of its own on a base that all share."""
