"""A durable, verifiable record of Agent Client Protocol sessions."""
