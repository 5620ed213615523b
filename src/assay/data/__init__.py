"""Rows that a task reads: the user's table or built-in real data. Needs no network, ever."""
