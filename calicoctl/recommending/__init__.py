"""`policy recommend`: where flows come from, and the proposal as text."""
