"""Small torch networks that several families train in the same way."""
