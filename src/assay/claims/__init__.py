"""Claims of papers, re-run: a claim, its verdict, and the ledger of all of them."""
