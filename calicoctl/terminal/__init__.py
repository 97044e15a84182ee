"""What a terminal gets beside the answer: suggestions, colours."""
