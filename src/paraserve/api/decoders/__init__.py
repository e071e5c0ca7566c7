"""Requests of other APIs as the chat request that says the same: what they have of their own is resolved here."""
