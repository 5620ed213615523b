"""The conformance suite: the laws every method must keep, for third-party methods too."""
