"""Where trials run: in this process, or each isolated in a local worker process."""
