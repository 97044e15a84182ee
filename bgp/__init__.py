"""The BGP agent of a node: which sessions, which routes out, which paths to felix."""
