"""Measurements behind the claims of the cards of this family."""
