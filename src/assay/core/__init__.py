"""The ground floor: exact ranks, checks of input, seeds, cards, errors. Imports nothing else of assay."""
