"""Who owns which address: blocks, claims and handles, decided purely, committed atomically."""
